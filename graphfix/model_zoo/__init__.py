"""Work on a folder of models: the recipe of each, its stages, the cache of results, the page."""
