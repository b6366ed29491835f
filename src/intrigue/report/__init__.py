"""Reports: runs on disk become one self-contained page and its figures. `page.write_report` is the way in."""
