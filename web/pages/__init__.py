"""Pages in a browser: server-made HTML and SVG over `view`."""
