// The code editor: CodeMirror in a shadow root, whose style sheets the content policy allows. Text goes in and out as text.

import { EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from "@codemirror/view";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { HighlightStyle, bracketMatching, foldGutter, foldKeymap, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintKeymap, setDiagnostics } from "@codemirror/lint";
import { yaml } from "@codemirror/lang-yaml";
import { tags } from "@lezer/highlight";

// Colours are those of the page, and change with them.
const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--link)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--succeeded-text)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--waiting-text)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--quiet)", fontStyle: "italic" },
  { tag: [tags.keyword, tags.typeName, tags.labelName], color: "var(--failed-text)" },
]);

const looks = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--ground)", border: "1px solid var(--planned-line)", borderRadius: "4px", fontSize: "13px" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", maxHeight: "38rem", minHeight: "8rem", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--quiet)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--running-fill) 45%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--running-fill)" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--panel)", color: "var(--quiet)", border: "1px solid var(--line)" },
  // Use the browser's wavy underline: the content policy blocks images in style sheets.
  ".cm-lintRange": { backgroundImage: "none", paddingBottom: "1px" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--failed-line)" },
  ".cm-lintRange-warning": { backgroundImage: "none", textDecoration: "underline wavy var(--waiting-line)" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--failed-line)" },
  ".cm-diagnostic-warning": { borderLeft: "4px solid var(--waiting-line)" },
});

// Opens an editor in place of a field. The field keeps the text, so that forms submit it.
export function openEditor(field, label) {
  const host = document.createElement("div");
  host.className = "editor";
  // A label would move the focus away from its content.
  const frame = field.closest("label") ?? field;
  frame.after(host);
  frame.hidden = true;
  const root = host.attachShadow({ mode: "open" });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: field.value,
      extensions: [
        lineNumbers(),
        highlightActiveLineGutter(),
        foldGutter(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        highlightActiveLine(),
        yaml(),
        syntaxHighlighting(colours),
        looks,
        keymap.of([...defaultKeymap, ...historyKeymap, ...foldKeymap, ...lintKeymap]),
        EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged) return;
          field.value = update.state.doc.toString();
          field.dispatchEvent(new Event("input", { bubbles: true }));
        }),
      ],
    }),
  });
  const place = (line, column) => {
    const at = view.state.doc.line(Math.min(Math.max(1, line), view.state.doc.lines));
    return Math.min(at.to, at.from + Math.max(0, column - 1));
  };
  return {
    get text() {
      return view.state.doc.toString();
    },
    set text(text) {
      if (text === view.state.doc.toString()) return;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    // Findings as { line, column, endLine, endColumn, severity, message }.
    underline(findings) {
      const marks = findings.map((one) => {
        const from = place(one.line, one.column);
        const to = place(one.endLine || one.line, one.endColumn || one.column + 1);
        // An empty range is shown as one character.
        return { from, to: Math.max(to, Math.min(from + 1, view.state.doc.length)), severity: one.severity, message: one.message };
      });
      marks.sort((one, other) => one.from - other.from);
      view.dispatch(setDiagnostics(view.state, marks));
    },
    goTo(line, column) {
      const at = place(line, column);
      view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
      view.focus();
    },
    focus: () => view.focus(),
  };
}
