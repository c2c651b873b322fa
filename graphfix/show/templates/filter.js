// Shows the places alone whose names hold all words of the search box, with their folds opened.
const box = document.getElementById("filter");
const places = [...document.querySelectorAll("[data-place]")];
if (places.length > 3) box.closest("p").hidden = false;
box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const place of places) {
    const name = place.dataset.place.toLowerCase();
    place.hidden = !words.every((word) => name.includes(word));
  }
  for (const fold of document.querySelectorAll("details.fold")) {
    const hit = fold.querySelector("[data-place]:not([hidden])") !== null;
    fold.hidden = words.length > 0 && !hit;
    fold.open = words.length > 0 && hit;
  }
});
