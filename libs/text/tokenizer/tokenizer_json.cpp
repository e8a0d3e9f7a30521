#include "tokenizer/tokenizer_json.hpp"

#include <algorithm>

#include "tokenizer/letters.hpp"
#include "tokenizer/tokenizer_parts.hpp"

namespace prun {

// ------------------------------------------------------------------- tokenizer json

void refuse_type(const Fields& fields, const std::string& type) {
  throw_error(
      ErrorCode::bad_input, fields.name_of("type"), " is ", in_quotes(type),
      ", which prun does not have; it reads BPE such as that of GPT-2, Llama, Qwen, Mistral and Gemma, "
      "Unigram such as T5's and WordPiece such as BERT's");
}

namespace {

class Reader {
 public:
  Reader(const JsonValue& root, const std::string& source) : source_(source), file_(root, source) {
    vocabulary_.source = source;
  }

  TokenizerTables read() {
    file_.ignore({"version"});
    file_.expect_off("truncation");
    file_.expect_off("padding");
    read_steps();
    const JsonArray* const added = added_tokens();
    tables_.model =
        read_model(file_.need("model"), place("model"), bytes_, added ? added->size() : 0, vocabulary_);
    read_added_tokens();
    read_post_processor();
    read_tokens();
    file_.finish();
    return std::move(tables_);
  }

 private:
  std::string place(std::string_view part) const { return source_ + ": " + std::string(part); }

  void read_steps() {
    if (const JsonValue* const value = file_.take("normalizer"))
      read_normalizer(*value, place("normalizer"), tables_.normalizer);
    const JsonValue* const value = file_.take("pre_tokenizer");
    if (!value) return;
    Cutting cutting;
    read_cutting(*value, place("pre_tokenizer"), cutting);
    tables_.cutting = std::move(cutting.steps);
    bytes_ = cutting.bytes;
  }

  // In a byte-level vocabulary, the texts of tokens are letters that stand for bytes, both ways.
  void read_tokens() {
    const Decoding decoding = read_decoding(file_.need("decoder"), place("decoder"));
    if (decoding.letters != bytes_)
      throw_error(ErrorCode::bad_input, place("decoder"), bytes_ ? " is not" : " is",
                  " ByteLevel, unlike the pre_tokenizer; the file is damaged");
    tables_.decoding = decoding.rules;
    for (const std::string& text : vocabulary_.texts) tables_.tokens.push_back(decoding.bytes_of(text));
  }

  // --- added tokens

  const JsonArray* added_tokens() {
    return file_.take("added_tokens") ? &file_.array("added_tokens") : nullptr;
  }

  void read_added_tokens() {
    const JsonArray* const list = added_tokens();
    if (!list) return;
    for (std::size_t i = 0; i < list->size(); ++i)
      add_added_token(Fields((*list)[i], place("added_tokens." + std::to_string(i))),
                      vocabulary_.ids.size() + list->size());
    check_sides();
  }

  // Refuses two tokens of which one could take the white space that the other takes.
  void check_sides() const {
    const auto takes = [](const AddedToken& token) { return token.takes_left || token.takes_right; };
    const auto has_space = [](const AddedToken& token) {
      return leading_spaces(token.text) + trailing_spaces(token.text) > 0;
    };
    if (std::any_of(tables_.added.begin(), tables_.added.end(), takes) &&
        std::any_of(tables_.added.begin(), tables_.added.end(), has_space))
      throw_error(
          ErrorCode::bad_input, place("added_tokens"),
          " has tokens that take white space beside them (lstrip, rstrip) and others that begin or end "
          "with it, which prun does not have together");
  }

  // The package gives new texts the next id, whatever the file says; so another one would be misleading.
  void add_added_token(Fields fields, std::size_t most) {
    AddedToken token{fields.text("content"),           0,
                     fields.flag("special", false),    fields.flag("normalized", true),
                     fields.flag("lstrip", false),     fields.flag("rstrip", false),
                     fields.flag("single_word", false)};
    token.id = vocabulary_.id_of(fields.need("id"), token.text, 2 * most);
    fields.finish();
    const auto known = vocabulary_.ids.find(token.text);
    const TokenId expected =
        known != vocabulary_.ids.end() ? known->second : static_cast<TokenId>(vocabulary_.texts.size());
    if (token.id != expected)
      throw_error(ErrorCode::bad_input, fields.where(), ": ", in_quotes(token.text), " has the id ", token.id,
                  ", where ", expected, " would be its turn; the file is damaged");
    if (known == vocabulary_.ids.end()) vocabulary_.add(token.text, token.id);
    Normalizer::Scratch normal;
    if (token.normalized) token.text = std::string(tables_.normalizer.of(token.text, normal));
    if (token.text.empty()) fields.refuse("content", "is nothing once it is normalized; the file is damaged");
    tables_.added.push_back(std::move(token));
  }

  void read_post_processor() {
    if (const JsonValue* const value = file_.take("post_processor"))
      read_processor(Fields(*value, place("post_processor")));
  }

  void read_processor(Fields fields) {
    const std::string& type = fields.text("type");
    if (type == "ByteLevel") {
      fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});  // offsets alone
    } else if (type == "TemplateProcessing") {
      read_template(fields);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      read_pair(fields);
    } else if (type == "Sequence") {
      const JsonArray& list = fields.array("processors");
      for (std::size_t i = 0; i < list.size(); ++i)
        read_processor(Fields(list[i], fields.where() + "." + std::to_string(i)));
    } else {
      refuse_type(fields, type);
    }
    fields.finish();
  }

  // Reads a token before a text and one after it.
  void read_pair(Fields& fields) {
    fields.ignore({"add_prefix_space", "trim_offsets"});  // offsets alone
    const auto read = [&](const char* name, std::vector<TokenId>& to) {
      const JsonArray& pair = fields.array(name);
      if (pair.size() != 2 || !pair[0].is_string())
        fields.refuse(name, "is no token and its id; the file is damaged");
      to.push_back(vocabulary_.id_of(pair[1], pair[0].as_string(), vocabulary_.texts.size()));
    };
    read("cls", tables_.prefix);
    read("sep", tables_.suffix);
  }

  // Reads special tokens before a text and after it.
  void read_template(Fields& fields) {
    fields.ignore({"pair"});
    Fields special(fields.need("special_tokens"), fields.where() + ".special_tokens");
    bool text_came = false;
    for (const JsonValue& item : fields.array("single")) {
      Fields piece(item, fields.where() + ".single");
      if (piece.take("Sequence")) {
        text_came = true;
        continue;
      }
      Fields token(piece.need("SpecialToken"), piece.where() + ".SpecialToken");
      Fields named(special.need(token.text("id")), special.where());
      for (const JsonValue& id : named.array("ids"))
        (text_came ? tables_.suffix : tables_.prefix)
            .push_back(vocabulary_.id_of(id, token.text("id"), vocabulary_.texts.size()));
    }
  }

  const std::string& source_;
  Fields file_;
  bool bytes_ = false;
  Vocabulary vocabulary_;
  TokenizerTables tables_;
};

}  // namespace

TokenizerTables read_tokenizer_json(std::string_view json, const std::string& source) {
  return Reader(parse_json(json, source), source).read();
}

// ------------------------------------------------------------------- model json
// Reads the model's section of a tokenizer.json.

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
