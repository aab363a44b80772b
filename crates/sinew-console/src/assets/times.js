// Times of pages: relative, or absolute in the zone of the browser or in UTC. The choice is stored in the browser. Pages without
// this module show relative times, and absolute times in UTC.

const STORED = "sinew-times";
export const CHOICES = [["ago", "relative"], ["local", "local"], ["utc", "UTC"]];

export const timesChoice = () => {
  const stored = localStorage.getItem(STORED);
  return CHOICES.some(([name]) => name === stored) ? stored : "ago";
};

export function chooseTimes(name) {
  localStorage.setItem(STORED, name);
  formatTimes(document);
}

const isUtc = () => timesChoice() === "utc";
const two = (number) => String(number).padStart(2, "0");

function parts(date) {
  const of = (name) => (isUtc() ? date[`getUTC${name}`]() : date[`get${name}`]());
  const day = `${of("FullYear")}-${two(of("Month") + 1)}-${two(of("Date"))}`;
  return { day, clock: `${two(of("Hours"))}:${two(of("Minutes"))}:${two(of("Seconds"))}` };
}

// "UTC", or the difference from it, such as "UTC+01:00": names of zones are ambiguous.
function zone(date) {
  const minutes = isUtc() ? 0 : -date.getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

// Date, time and zone.
export function moment(date) {
  const { day, clock } = parts(date);
  return `${day} ${clock} ${zone(date)}`;
}

// The time of day.
export const clock = (date) => parts(date).clock;

// Shows all times below an element as chosen; the title has the date and the zone.
export function formatTimes(root) {
  for (const mark of root.querySelectorAll("time[data-time]")) {
    const date = new Date(mark.dateTime);
    if (Number.isNaN(date.getTime())) continue;
    mark.title = moment(date);
    const kind = mark.dataset.time;
    if (kind === "ago") {
      mark.dataset.ago ??= mark.textContent;
      mark.textContent = timesChoice() === "ago" ? mark.dataset.ago : moment(date);
    } else if (kind === "clock") {
      mark.textContent = `${clock(date)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
    } else {
      mark.textContent = moment(date);
    }
  }
}
