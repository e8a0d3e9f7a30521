#include "tokenizer/tokenizer.hpp"

#include <algorithm>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "prun/error.hpp"
#include "tokenizer/encoder.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

std::string without_spaces(std::string_view token) {
  std::string text(token);
  std::erase(text, ' ');
  return text;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// A token as it stands in a text, as the package writes it; it cleans up each by itself.
std::string word_piece(const DecodingRules& rules, std::string_view token, bool first) {
  constexpr std::pair<std::string_view, std::string_view> clean[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  const bool goes_on = token.starts_with(*rules.words);
  if (goes_on && !first) token.remove_prefix(rules.words->size());
  std::string text = first || goes_on ? std::string(token) : " " + std::string(token);
  if (rules.clean_up)
    for (const auto& [from, to] : clean) replace_all(text, from, to);
  return text;
}

bool begins_words(const CutAt& step) {
  return step.pattern && step.pattern->begins_at_spaces() && step.keep == CutAt::Keep::isolated &&
         !step.inverted;
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  const std::string failed = "cannot read " + in_quotes(file.string()) + " as a tokenizer.json";
  return {whole_file(file, JsonLimits{}.bytes, failed), file.string()};
}

// Texts are cut where words are found by an expression and letters of ASCII are as they are.
Tokenizer::Tokenizer(std::string_view json, const std::string& source)
    : tables_(read_tokenizer_json(json, source)) {
  const std::vector<CuttingStep>& steps = tables_.cutting;
  only_words_ = steps.size() == 1;
  const bool behind_digits = steps.size() == 2 && std::holds_alternative<CutDigits>(steps[0]);
  if ((only_words_ || behind_digits) && tables_.normalizer.works_by_letters()) {
    if (const CutWords* const words = std::get_if<CutWords>(&steps.back()))
      splitter_.emplace(words->rules);
    else if (const CutAt* const at = std::get_if<CutAt>(&steps.back()); at && begins_words(*at))
      splitter_.emplace(WordRules::spaces);
  }
  for (const AddedToken& token : tables_.added) {
    added_start_[static_cast<unsigned char>(token.text[0])] = true;
    added_hold_spaces_ |=
        token.takes_left || token.takes_right || token.text.find_first_of(" \n") != std::string::npos;
  }
}

std::optional<TokenId> Tokenizer::find_added(std::string_view text) const {
  for (const AddedToken& token : tables_.added)
    if (token.text == text) return token.id;
  return {};
}

std::optional<TokenId> Tokenizer::end_of_text() const {
  for (const char* text : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"})
    if (const std::optional<TokenId> id = find_added(text)) return id;
  return {};
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  Encoder(*this).append(text, ids);
  return ids;
}

// Behind digits that stand alone only a space counts: a run of others would end with them.
bool Tokenizer::may_cut(std::string_view text, std::size_t at) const {
  return splitter_->may_cut(text, at) && (only_words_ || text[at] == ' ') &&
         !added_start_[static_cast<unsigned char>(text[at + 1])];
}

std::size_t Tokenizer::last_cut(std::string_view text, std::size_t longest) const {
  if (!splitter_ || added_hold_spaces_ || text.empty()) return 0;
  std::size_t at = std::min(longest, text.size() - 1);
  while (at > 0 && !may_cut(text, at)) --at;
  return at;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id < 0 || id >= size() || tables_.tokens[static_cast<std::size_t>(id)].empty())
    throw_error(ErrorCode::bad_input, "the tokenizer has no token ", id, "; its ids are below ", size());
  return tables_.tokens[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool begins) const {
  const DecodingRules& rules = tables_.decoding;
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool first = begins && i == 0;
    if (rules.words)
      text += word_piece(rules, bytes(ids[i]), first);
    else if (rules.strip_first && first)
      text += without_spaces(bytes(ids[i]));
    else
      text += bytes(ids[i]);
  }
  if (rules.strip_space && begins && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace prun
