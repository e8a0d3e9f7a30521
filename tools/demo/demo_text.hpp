// Holds pages of docs, which the build embeds: what `prun demo` learns from.
#pragma once

#include <string>
#include <string_view>

namespace prun {

extern const std::string_view demo_pages;

// Returns the sentences of pages in Markdown, without tables, code, headings and marks.
std::string prose_of(std::string_view pages);

}  // namespace prun
