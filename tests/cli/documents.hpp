// README.md, the pages of docs, and those that sort recipes and examples, as tests read them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace prun::test {

inline const std::filesystem::path document_root = PRUN_SOURCE_DIR;

inline std::string document_text(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// A fenced block of a page.
struct DocumentBlock {
  std::string language;
  std::vector<std::string> lines;

  // The arrows of docs/architecture.md are none.
  bool has_commands() const {
    const auto arrow = [](const std::string& line) { return line.find("→") != std::string::npos; };
    return (language.empty() || language == "sh") && std::none_of(lines.begin(), lines.end(), arrow);
  }
  bool is_elsewhere() const { return lines.front().starts_with("# elsewhere: "); }

  // "# NAME.toml" in a recipe's first line is the file that the reader is to make of it; else empty.
  std::string file_name() const {
    const bool named = language == "toml" && !lines.empty() && lines.front().starts_with("# ") &&
                       lines.front().ends_with(".toml") && lines.front().find(' ', 2) == std::string::npos;
    return named ? lines.front().substr(2) : "";
  }
  std::string text() const {
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
};

inline std::vector<DocumentBlock> document_blocks(const std::filesystem::path& document) {
  std::vector<DocumentBlock> blocks;
  std::ifstream in(document);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.compare(begin, 3, "```") == 0) {
      if (!inside) blocks.push_back({line.substr(begin + 3), {}});
      inside = !inside;
    } else if (inside) {
      blocks.back().lines.push_back(line);
    }
  }
  EXPECT_FALSE(inside) << document << ": a block has no end";
  return blocks;
}

// Paths from the source's folder on, README.md first.
inline std::vector<std::string> all_documents() {
  std::vector<std::string> all;
  for (const char* const top : {"docs", "configs", "examples"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(document_root / top))
      if (entry.path().extension() == ".md")
        all.push_back(std::filesystem::relative(entry.path(), document_root).generic_string());
  std::sort(all.begin(), all.end());
  all.insert(all.begin(), "README.md");
  return all;
}

}  // namespace prun::test
