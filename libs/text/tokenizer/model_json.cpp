// Reads the model's section of a tokenizer.json.
#include "tokenizer/tokenizer_parts.hpp"

#include <algorithm>

namespace prun {

TokenId Vocabulary::id_of(const JsonValue& value, const std::string& token, std::size_t most) const {
  if (!value.is_integer() || value.as_double() < 0 || value.as_double() >= static_cast<double>(most))
    throw_error(ErrorCode::bad_input, source, ": token ", in_quotes(token),
                " has no id that fits the number of tokens; the file is damaged");
  return static_cast<TokenId>(value.as_int64());
}

void Vocabulary::add(const std::string& token, TokenId id) {
  const auto at = static_cast<std::size_t>(id);
  if (token.empty())
    throw_error(ErrorCode::bad_input, source, ": token ", id, " has no text; the file is damaged");
  if (at >= texts.size()) texts.resize(at + 1);
  if (!texts[at].empty())
    throw_error(ErrorCode::bad_input, source, ": token ", in_quotes(token), " and another one have the id ",
                id, "; the file is damaged");
  texts[at] = token;
  if (!ids.emplace(token, id).second)
    throw_error(ErrorCode::bad_input, source, ": token ", in_quotes(token),
                " is there twice; the file is damaged");
}

namespace {

class ModelReader {
 public:
  ModelReader(const JsonValue& value, const std::string& where, bool bytes, std::size_t added,
              Vocabulary& vocabulary)
      : fields_(value, where), bytes_(bytes), added_(added), vocabulary_(vocabulary) {}

  WordModel read() {
    const std::string type = fields_.take("type") ? fields_.text("type") : "BPE";
    if (type == "BPE")
      read_pairs();
    else if (type == "Unigram" && !bytes_)
      read_unigram();
    else if (type == "WordPiece" && !bytes_)
      read_word_pieces();
    else
      refuse_type(fields_, type);
    fields_.finish();
    return std::move(model_);
  }

 private:
  void read_vocabulary() {
    const JsonValue& list = fields_.need("vocab");
    if (!list.is_object()) fields_.refuse("vocab", "is not an object; the file is damaged");
    const std::size_t most = 2 * (list.as_object().members().size() + added_);
    for (const JsonMember& member : list.as_object().members())
      vocabulary_.add(member.name, vocabulary_.id_of(member.value, member.name, most));
  }

  void read_unknown(const char* name) {
    const std::string& text = fields_.text(name);
    const auto found = vocabulary_.ids.find(text);
    if (found == vocabulary_.ids.end()) fields_.refuse(name, "is no token; the file is damaged");
    model_.unknown = found->second;
  }

  // --- BPE

  void read_pairs() {
    for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      fields_.expect_off(name);
    read_vocabulary();
    model_.kind = bytes_ ? ModelKind::byte_pairs : ModelKind::letter_pairs;
    const bool fallback = fields_.flag("byte_fallback", false);
    if (bytes_) {
      fields_.ignore({"unk_token", "fuse_unk"});  // each byte is a token: nothing is unknown
      find_bytes();
    } else {
      read_letters(fallback);
    }
    if (fields_.flag("ignore_merges", false)) keep_whole_words();
    read_merges(fields_, fields_.array("merges"));
  }

  void read_letters(bool fallback) {
    model_.fuse_unknown = fields_.flag("fuse_unk", false);
    if (fallback)
      find_fallback();
    else if (!fields_.take("unk_token"))
      fields_.refuse("unk_token",
                     "is missing, so that unknown characters would be left out; prun has no "
                     "tokenizer that does so");
    if (fields_.take("unk_token")) read_unknown("unk_token");
    std::vector<std::string> letters(vocabulary_.texts.size());
    for (std::size_t id = 0; id < letters.size(); ++id)
      if (const std::string& text = vocabulary_.texts[id];
          !text.empty() && decode_utf8(text).bytes == text.size())
        letters[id] = text;
    model_.pieces = PieceTrie(letters);
  }

  // Keeps whole words as the cutting gives them: of bytes, or of characters.
  void keep_whole_words() {
    for (const auto& [token, id] : vocabulary_.ids) {
      const std::optional<std::string> word = bytes_ ? letters_.decode(token) : std::optional(token);
      if (word) model_.whole.emplace(*word, id);
    }
  }

  void find_bytes() {
    std::array<bool, 256> found{};
    for (const auto& [token, id] : vocabulary_.ids) {
      const std::optional<std::string> bytes = letters_.decode(token);
      if (!bytes || bytes->size() != 1) continue;
      const auto byte = static_cast<unsigned char>(bytes->front());
      model_.bytes[byte] = id;
      found[byte] = true;
    }
    const auto missing = std::find(found.begin(), found.end(), false);
    if (missing != found.end())
      fields_.refuse("vocab", detail::concat("has no token for the byte ", missing - found.begin(),
                                             "; prun reads byte-level BPE, which has one for each"));
  }

  // Finds the tokens <0x00> to <0xFF>.
  void find_fallback() {
    model_.byte_fallback = true;
    constexpr std::string_view digits = "0123456789ABCDEF";
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::string token = std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
      const auto found = vocabulary_.ids.find(token);
      if (found == vocabulary_.ids.end())
        fields_.refuse("byte_fallback", "is set, and there is no token " + token +
                                            "; prun has it with a token for each byte alone");
      model_.bytes[byte] = found->second;
    }
  }

  void read_merges(const Fields& model, const JsonArray& merges) {
    model_.merges = MergeTable(merges.size());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = pair_of(model, merges[rank], rank);
      const auto a = vocabulary_.ids.find(left), b = vocabulary_.ids.find(right),
                 both = vocabulary_.ids.find(left + right);
      if (a == vocabulary_.ids.end() || b == vocabulary_.ids.end() || both == vocabulary_.ids.end())
        throw_error(ErrorCode::bad_input, model.name_of("merges"), " has ", in_quotes(left), " and ",
                    in_quotes(right), " at ", rank,
                    ", which are not tokens, or not together; the file is damaged");
      model_.merges.set(a->second, b->second, {static_cast<std::uint32_t>(rank), both->second});
    }
  }

  // Reads ["a", "b"], or "a b" as older files have it.
  static std::pair<std::string, std::string> pair_of(const Fields& model, const JsonValue& merge,
                                                     std::size_t rank) {
    if (merge.is_array() && merge.as_array().size() == 2 && merge.as_array()[0].is_string() &&
        merge.as_array()[1].is_string())
      return {merge.as_array()[0].as_string(), merge.as_array()[1].as_string()};
    const std::string text = merge.is_string() ? merge.as_string() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      model.refuse("merges", detail::concat("has no pair of tokens at ", rank, "; the file is damaged"));
    return {text.substr(0, space), text.substr(space + 1)};
  }

  // --- unigram

  void read_unigram() {
    const JsonArray& list = fields_.array("vocab");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonValue& item = list[i];
      const bool pair = item.is_array() && item.as_array().size() == 2 && item.as_array()[0].is_string() &&
                        (item.as_array()[1].is_integer() || item.as_array()[1].kind() == JsonKind::real);
      if (!pair)
        fields_.refuse("vocab", detail::concat("has no token and score at ", i, "; the file is damaged"));
      vocabulary_.add(item.as_array()[0].as_string(), static_cast<TokenId>(i));
      model_.scores.push_back(item.as_array()[1].as_double());
    }
    if (list.empty()) fields_.refuse("vocab", "is empty; the file is damaged");
    const JsonValue& unknown = fields_.need("unk_id");
    model_.kind = ModelKind::unigram;
    model_.unknown = vocabulary_.id_of(unknown, "of unk_id", list.size());
    constexpr double penalty = 10;
    model_.unknown_score = *std::min_element(model_.scores.begin(), model_.scores.end()) - penalty;
    if (fields_.flag("byte_fallback", false)) find_fallback();
    model_.pieces = PieceTrie(vocabulary_.texts);
  }

  // --- word pieces

  void read_word_pieces() {
    read_vocabulary();
    read_unknown("unk_token");
    model_.kind = ModelKind::word_pieces;
    model_.continuing = fields_.text("continuing_subword_prefix");
    const JsonValue* const longest = fields_.take("max_input_chars_per_word");
    if (longest && (!longest->is_integer() || longest->as_double() < 0))
      fields_.refuse("max_input_chars_per_word", "is no count; the file is damaged");
    model_.longest = longest ? static_cast<std::size_t>(longest->as_uint64()) : 100;
    model_.pieces = PieceTrie(vocabulary_.texts);
  }

  Fields fields_;
  bool bytes_;
  std::size_t added_;
  Vocabulary& vocabulary_;
  const ByteLetters letters_;
  WordModel model_;
};

}  // namespace

WordModel read_model(const JsonValue& value, const std::string& where, bool bytes, std::size_t added,
                     Vocabulary& vocabulary) {
  return ModelReader(value, where, bytes, added, vocabulary).read();
}

}  // namespace prun
