// What tests/tokenize/make_fixtures wrote.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "tokenizer/tokenizer.hpp"

namespace prun::test {

using Ids = std::vector<TokenId>;

inline std::string fixture(const std::string& name) {
  std::ifstream file(PRUN_TEST_FIXTURES "/tokenizer/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << name;
  return text.str();
}

inline std::string utf8(char32_t code) {
  const auto tail = [code](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | (code >> 6)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | (code >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)};
}

inline Tokenizer tokenizer_of(const std::string& kind) { return {fixture(kind + ".json"), kind}; }

inline std::vector<std::string> texts() {
  std::vector<std::string> list;
  std::istringstream lines(fixture("texts.jsonl"));
  for (std::string line; std::getline(lines, line);)
    list.push_back(parse_json(line, "texts.jsonl").at("text").as_string());
  return list;
}

}  // namespace prun::test
