// Import: submits the text of an exported file that is chosen or dropped on the page.

for (const field of document.querySelectorAll("[data-import]")) {
  field.addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    event.target.form.elements[field.dataset.import].value = await file.text();
    // Submit only if the first file is present.
    if (event.target.form.elements.text.value) event.target.form.requestSubmit();
  });
}

const dropPlace = document.getElementById("import");
if (dropPlace) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    dropPlace.classList.add("drop");
  });
  addEventListener("dragleave", (event) => event.relatedTarget ?? dropPlace.classList.remove("drop"));
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    dropPlace.classList.remove("drop");
    const field = dropPlace.querySelector("[data-import=text]");
    field.files = event.dataTransfer.files;
    field.dispatchEvent(new Event("change"));
  });
}
