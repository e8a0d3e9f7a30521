// Turns text to tokens and back, as a Hugging Face tokenizer.json says: BPE of bytes or characters, unigram,
// word pieces. Its results equal those of the package `tokenizers`.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/cutting.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/word_models.hpp"

namespace prun {

// ------------------------------------------------------------------- tokenizer

// Is a token that stands for a text of its own, such as <|endoftext|>; it is looked for before words are.
struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;                       // looked for in what those that are not have left
  bool takes_left = false, takes_right = false;  // white space beside it is its own
  bool alone = false;                            // no letter of a word lies beside it
};

// Says how texts are made of tokens.
struct DecodingRules {
  bool strip_space = false;          // a space in front of all is none
  bool strip_first = false;          // no space of the first token is one
  std::optional<std::string> words;  // tokens are words, but for those with this in front, which go on
  bool clean_up = false;             // of words: no spaces in front of punctuation
};

// Holds what a tokenizer.json says.
struct TokenizerTables {
  std::vector<std::string> tokens;  // the bytes of each id; empty where there is no such token
  WordModel model;
  Normalizer normalizer;  // of texts, but for added tokens
  std::vector<CuttingStep> cutting;
  DecodingRules decoding;
  std::vector<AddedToken> added;
  std::vector<TokenId> prefix, suffix;
};

// Is immutable, for any number of threads.
class Tokenizer {
 public:
  // Loads a tokenizer.json, or that of a folder. Throws bad_input, not_found or storage; what the file asks
  // for and prun does not have is refused by its name.
  static Tokenizer load(const std::filesystem::path& path);
  // `source` names the text in messages.
  Tokenizer(std::string_view json, const std::string& source);

  // All ids are below it: the vocabulary that a model must have at least.
  TokenId size() const { return static_cast<TokenId>(tables_.tokens.size()); }
  std::optional<TokenId> find_added(std::string_view text) const;
  // Returns <|endoftext|>, <|end_of_text|>, </s> or <eos>, the first that there is.
  std::optional<TokenId> end_of_text() const;
  // Returns what the file's template puts before a text, such as Llama 3's <|begin_of_text|>. encode() does
  // not.
  std::span<const TokenId> prefix() const { return tables_.prefix; }
  // Returns what it puts after one, such as T5's </s>.
  std::span<const TokenId> suffix() const { return tables_.suffix; }

  // The texts of added tokens become these, of special ones too. Throws bad_input for what is not UTF-8.
  std::vector<TokenId> encode(std::string_view text) const;
  // Where a text may be cut, at most `longest` bytes from its start and as far from it as there is a place:
  // the tokens of both pieces are those of the whole. 0 where there is none.
  std::size_t last_cut(std::string_view text, std::size_t longest) const;
  // Returns the bytes that a token stands for: a character may take several tokens. Throws bad_input for an
  // id that is no token's.
  std::string_view bytes(TokenId id) const;
  // `begins`: the text begins with them. Else they go on with one, of which nothing is taken off.
  std::string decode(std::span<const TokenId> ids, bool begins = true) const;

  const TokenizerTables& tables() const { return tables_; }

 private:
  bool may_cut(std::string_view text, std::size_t at) const;

  TokenizerTables tables_;
  std::optional<WordSplitter> splitter_;  // where texts can be cut: of the step that finds words
  // These are, of added tokens, the first bytes, before which words end, and whether a cut could be within
  // one.
  std::array<bool, 256> added_start_{};
  bool added_hold_spaces_ = false, only_words_ = false;
};

// ------------------------------------------------------------------- encoder
// Encodes texts one after the other and remembers the words it has met. One thread uses it at a time.

class Encoder {
 public:
  // Borrows the tokenizer.
  explicit Encoder(const Tokenizer& tokenizer);
  // Appends the text's tokens. Throws bad_input for what is not UTF-8.
  void append(std::string_view text, std::vector<TokenId>& out);

 private:
  // Holds added tokens by their texts, and by first byte which lengths there are, the longest first.
  struct Starts {
    std::unordered_map<std::string_view, const AddedToken*> tokens;
    std::array<std::vector<std::size_t>, 256> lengths;
  };

  // Holds a short word's tokens, in one line of the processor's cache.
  struct Memo {
    static constexpr std::size_t longest = 26, most = 9;
    std::uint8_t bytes = 0, count = 0;
    char word[longest];
    TokenId tokens[most];
  };

  static const AddedToken* match(const Starts& starts, std::string_view text);
  void append_between(std::size_t which, std::string_view text, bool first, std::vector<TokenId>& out);
  void append_behind(std::size_t which, std::string_view text, bool first, std::vector<TokenId>& out);
  void append_word(std::string_view word, std::vector<TokenId>& out);

  const TokenizerTables& tables_;
  Cutter cutter_;
  WordEncoder words_;
  std::array<Starts, 2> starts_;  // as they are, then those that are normalized
  std::vector<Memo> memo_;        // by the word's hash
  Normalizer::Scratch normal_;
};

}  // namespace prun
