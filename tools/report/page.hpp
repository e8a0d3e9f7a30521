// Writes the frame of a page: one file that needs no other, allows nothing but its own style and script to
// act, and can be read where scripts do not run.
#pragma once

#include <string>

#include "report/chart.hpp"

namespace prun {

// Every page begins with this.
inline constexpr const char* page_mark = "<!DOCTYPE html>\n<!-- prun report -->\n";

// `title` stands above the body; `facts` in small letters below it.
std::string whole_page(const std::string& title, const std::string& facts, const std::vector<Chart>& charts,
                       const Html& body);

// Opens a section with a heading that has a place in the list of contents.
void open_section(Html& page, const std::string& id, const std::string& title);

// Is a row of a table of two columns, one row a fact.
struct Fact {
  std::string name, value;
};
void add_facts(Html& page, const std::string& caption, const std::vector<Fact>& facts);

// Adds rows of texts under heads; the first column names its row.
void add_table(Html& page, const std::string& caption, const std::vector<std::string>& heads,
               const std::vector<std::vector<std::string>>& rows);

}  // namespace prun
