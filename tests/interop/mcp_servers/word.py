"""office-word-mcp-server: the tools that write and change documents. It prints on stdout, where MCP is spoken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .filesystem import PIXEL
from .server import McpServer, script
from .step import Step, without

NAME = "office-word-mcp-server"
saved = without(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?")
sizes = without(r"[\d.]+ KB")
addresses = without(r"id: \d+")


def prepare(here: Path) -> None:
    (here / "pixel.png").write_bytes(PIXEL)


def env(here: Path) -> dict[str, str]:
    # Without a PATH no other program makes a PDF: the answer does not depend on what the machine has.
    return {"PATH": str(here)}


def steps(here: Path) -> list[Step]:
    def at(name: str) -> str:
        return str(here / name)

    doc: dict[str, Any] = {"filename": at("doc.docx")}
    table = {**doc, "table_index": 0}
    cell = {**table, "row_index": 1, "col_index": 1}
    notes: dict[str, Any] = {"filename": at("notes.docx")}
    return [
        Step("create_document", {**doc, "title": "naïve — ☃", "author": "Ada"}),
        Step("add_heading", {**doc, "text": "Beginning", "level": 1}),
        Step("add_paragraph", {**doc, "text": "Roses are red.", "bold": True, "font_size": 12}),
        Step("add_paragraph", {**doc, "text": "Violets are blue."}),
        Step("add_heading", {**doc, "text": "End", "level": 2}),
        Step("add_paragraph", {**doc, "text": "Sugar is sweet."}),
        Step("add_table", {**doc, "rows": 3, "cols": 3, "data": [["a", "b", "c"], ["1", "2", "3"], ["4", "5", "6"]]}),
        Step("add_picture", {**doc, "image_path": at("pixel.png"), "width": 1.5}),
        Step("add_page_break", doc),
        Step("get_document_text", doc),
        Step("get_document_text", {"filename": at("nowhere.docx")}),
        Step("get_document_outline", doc),
        Step("get_document_info", doc, saved),
        Step("list_available_documents", {"directory": str(here)}, sizes),
        Step("insert_header_near_text", {**doc, "target_text": "Violets", "header_title": "Middle"}),
        Step(
            "insert_line_or_paragraph_near_text",
            {**doc, "target_text": "Sugar", "line_text": "And so are you."},
            addresses,
        ),
        Step("insert_numbered_list_near_text", {**doc, "target_text": "Sugar", "list_items": ["one", "two"]}),
        Step("search_and_replace", {**doc, "find_text": "blue", "replace_text": "purple"}),
        Step("create_custom_style", {**doc, "style_name": "Loud", "bold": True, "font_size": 20}),
        Step("format_text", {**doc, "paragraph_index": 1, "start_pos": 0, "end_pos": 5, "italic": True}),
        Step("format_text", {**doc, "paragraph_index": 999, "start_pos": 0, "end_pos": 5}),
        Step("get_paragraph_text_from_document", {**doc, "paragraph_index": 1}),
        Step("find_text_in_document", {**doc, "text_to_find": "are", "whole_word": True}),
        Step("delete_paragraph", {**doc, "paragraph_index": 2}),
        Step("format_table", {**table, "has_header_row": True, "border_style": "single"}),
        Step("set_table_cell_shading", {**cell, "fill_color": "FF0000"}),
        Step("apply_table_alternating_rows", table),
        Step("highlight_table_header", table),
        Step("set_table_cell_alignment", {**cell, "horizontal": "center"}),
        Step("set_table_alignment_all", {**table, "horizontal": "right"}),
        Step("format_table_cell_text", {**cell, "text_content": "two", "bold": True}),
        Step("set_table_cell_padding", {**cell, "top": 5, "left": 2.5}),
        Step("set_table_column_width", {**table, "col_index": 0, "width": 90}),
        Step("set_table_column_widths", {**table, "widths": [50, 60.5, 70]}),
        Step("set_table_width", {**table, "width": 300}),
        Step("auto_fit_table_columns", table),
        Step("merge_table_cells", {**table, "start_row": 0, "start_col": 0, "end_row": 0, "end_col": 1}),
        Step("merge_table_cells_horizontal", {**table, "row_index": 1, "start_col": 0, "end_col": 1}),
        Step("merge_table_cells_vertical", {**table, "col_index": 2, "start_row": 1, "end_row": 2}),
        Step("replace_paragraph_block_below_header", {**doc, "header_text": "End", "new_paragraphs": ["The end."]}),
        Step(
            "replace_block_between_manual_anchors",
            {**doc, "start_anchor_text": "Middle", "end_anchor_text": "End", "new_paragraphs": ["All new."]},
        ),
        Step("get_all_comments", doc),
        Step("get_comments_by_author", {**doc, "author": "Ada"}),
        Step("get_comments_for_paragraph", {**doc, "paragraph_index": 0}),
        Step("copy_document", {"source_filename": at("doc.docx"), "destination_filename": at("notes.docx")}),
        Step("add_footnote_to_document", {**notes, "paragraph_index": 0, "footnote_text": "first"}),
        Step("add_footnote_after_text", {**notes, "search_text": "Roses", "footnote_text": "after"}),
        Step("add_footnote_before_text", {**notes, "search_text": "Roses", "footnote_text": "before"}),
        Step("add_footnote_enhanced", {**notes, "paragraph_index": 1, "footnote_text": "enhanced"}),
        Step("add_footnote_robust", {**notes, "paragraph_index": 1, "footnote_text": "robust"}),
        Step("add_endnote_to_document", {**notes, "paragraph_index": 1, "endnote_text": "end"}),
        Step("customize_footnote_style", {**notes, "numbering_format": "a, b, c"}),
        Step("validate_document_footnotes", notes),
        Step("delete_footnote_from_document", {**notes, "footnote_id": 3}),
        Step("delete_footnote_robust", {**notes, "footnote_id": 2}),
        Step("convert_to_pdf", doc),
        Step("get_document_xml", doc),
        Step("get_document_xml", notes),
        Step("protect_document", {**doc, "password": "secret"}),
        Step("unprotect_document", {**doc, "password": "wrong"}),
        Step("unprotect_document", {**doc, "password": "secret"}),
        Step("get_document_text", doc),
    ]


SERVER = McpServer(NAME, NAME, lambda here: [script(NAME, "word_mcp_server")], steps, prepare, env)
