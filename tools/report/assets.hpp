// Holds style and script of a page: page.css and page.js of this folder, which the build embeds.
#pragma once

#include <string_view>

namespace prun {

extern const std::string_view page_style, page_script;

}  // namespace prun
