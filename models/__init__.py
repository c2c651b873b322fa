"""Small models with the graphs of real ones. ``graphfix demo`` writes sensevoice from here."""
