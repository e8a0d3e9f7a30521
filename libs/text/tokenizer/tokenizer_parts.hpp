// The parts of a tokenizer.json, read one by one. Each throws bad_input for what is damaged and for what prun
// does not have, by its name; `where` is the part's name in messages.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/byte_letters.hpp"
#include "tokenizer/json_fields.hpp"
#include "tokenizer/tokenizer.hpp"

namespace prun {

[[noreturn]] void refuse_type(const Fields& fields, const std::string& type);

void read_normalizer(const JsonValue& value, const std::string& where, Normalizer& out);

struct Cutting {
  std::vector<CuttingStep> steps;
  bool bytes = false;  // words are then taken as bytes, each of which has a letter in the vocabulary
};
void read_cutting(const JsonValue& value, const std::string& where, Cutting& out);

// Holds the tokens by their texts in the file.
struct Vocabulary {
  std::string source;
  std::vector<std::string> texts;  // by id; empty where there is none
  std::unordered_map<std::string, TokenId> ids;

  // Ids are below `most`: far beyond the number of tokens they would make a table of nothing.
  TokenId id_of(const JsonValue& value, const std::string& token, std::size_t most) const;
  void add(const std::string& token, TokenId id);
};

// `bytes` is as of Cutting, `most` as of id_of().
WordModel read_model(const JsonValue& value, const std::string& where, bool bytes, std::size_t added,
                     Vocabulary& vocabulary);

// Says how the texts of tokens stand for bytes, and how these make a text.
struct Decoding {
  DecodingRules rules;
  bool letters = false;        // as ByteLetters have it
  bool byte_fallback = false;  // <0x0A> is a byte
  std::string mark;            // stands for a space; empty: nothing does

  std::string bytes_of(const std::string& token) const;
};
Decoding read_decoding(const JsonValue& value, const std::string& where);

}  // namespace prun
