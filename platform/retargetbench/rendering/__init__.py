"""Pictures and films of characters in motion, drawn on the CPU or GPU by torch alone: no display, no OpenGL.

`cameras` places one camera for all panels, `rasterizer` finds which face is seen where, `stage` shades it on a floor
with a shadow, `scenes` turns characters and motions into posed vertices, `contact_sheet` and `video` write files.
"""
