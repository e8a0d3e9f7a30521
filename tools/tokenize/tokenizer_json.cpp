// Takes the file apart member by member: what nobody took is something that we do not know the meaning of.
#include "tokenize/tokenizer_json.hpp"

#include <algorithm>
#include <set>

#include "base/json.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// One object of the file, whose members are taken one by one.
class Fields {
 public:
  Fields(const JsonValue& value, std::string where) : where_(std::move(where)) {
    if (!value.is_object()) refuse("", "is not an object; it is damaged");
    object_ = &value.as_object();
  }

  const std::string& where() const { return where_; }
  std::string name_of(std::string_view name) const { return where_ + ": '" + std::string(name) + "'"; }

  // Null where it is missing, or null.
  const JsonValue* take(std::string_view name) {
    taken_.insert(name);
    const JsonValue* const value = object_->find(name);
    return value && !value->is_null() ? value : nullptr;
  }
  const JsonValue& need(std::string_view name) {
    const JsonValue* const value = take(name);
    if (!value) refuse(name, "is missing");
    return *value;
  }
  const std::string& text(std::string_view name) {
    const JsonValue& value = need(name);
    if (!value.is_string()) refuse(name, "is not a text; the file is damaged");
    return value.as_string();
  }
  bool flag(std::string_view name, bool fallback) {
    const JsonValue* const value = take(name);
    if (value && value->kind() != JsonKind::boolean)
      refuse(name, "is neither true nor false; the file is damaged");
    return value ? value->as_bool() : fallback;
  }
  const JsonArray& array(std::string_view name) {
    const JsonValue& value = need(name);
    if (!value.is_array()) refuse(name, "is not an array; the file is damaged");
    return value.as_array();
  }
  // For members that change no token, such as the offsets of texts.
  void ignore(std::initializer_list<std::string_view> names) { taken_.insert(names); }
  // For what we only have as: absent, null, false, 0 or the empty text.
  void expect_off(std::string_view name) {
    const JsonValue* const value = take(name);
    if (!value) return;
    const bool off = (value->kind() == JsonKind::boolean && !value->as_bool()) ||
                     (value->kind() == JsonKind::real && value->as_double() == 0) ||
                     (value->is_string() && value->as_string().empty());
    if (!off) refuse(name, "is set, which prun does not have; use a tokenizer without it");
  }
  // Nothing is left that nobody took.
  void finish() const {
    for (const JsonMember& member : object_->members())
      if (!taken_.count(member.name) && !member.value.is_null())
        refuse(printable(member.name, 60), "is not a setting that prun knows; use a tokenizer without it");
  }

  [[noreturn]] void refuse(std::string_view name, std::string_view reason) const {
    throw_error(ErrorCode::bad_input, name.empty() ? where_ : name_of(name), " ", reason);
  }

 private:
  std::string where_;
  const JsonObject* object_ = nullptr;
  std::set<std::string_view> taken_;
};

// The bytes that letters of the file's tokens stand for: printable Latin-1 for itself, all others in their
// order for U+0100 and on.
class ByteLetters {
 public:
  ByteLetters() {
    int others = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      bytes_[static_cast<std::size_t>(itself ? byte : 0x100 + others++)] = byte;
    }
  }
  // Nothing for a text with other letters, which no word can become.
  std::optional<std::string> decode(std::string_view text) const {
    std::string bytes;
    while (!text.empty()) {
      const CodePoint point = decode_utf8(text);
      if (point.value >= bytes_.size() || bytes_[point.value] < 0) return {};
      bytes += static_cast<char>(bytes_[point.value]);
      text.remove_prefix(point.bytes);
    }
    return bytes;
  }

 private:
  static constexpr std::size_t letters = 0x100 + 68;
  std::array<int, letters> bytes_ = [] {
    std::array<int, letters> none{};
    none.fill(-1);
    return none;
  }();
};

class Reader {
 public:
  Reader(const JsonValue& root, const std::string& source) : source_(source), file_(root, source) {}

  TokenizerTables read() {
    file_.ignore({"version"});
    file_.expect_off("truncation");
    file_.expect_off("padding");
    read_normalizer();
    read_model();
    read_added_tokens();
    read_pre_tokenizer();
    read_post_processor();
    read_decoder();
    file_.finish();
    return std::move(tables_);
  }

 private:
  std::string place(std::string_view part) const { return source_ + ": " + std::string(part); }

  [[noreturn]] void refuse_type(const Fields& fields, const std::string& type) const {
    throw_error(
        ErrorCode::bad_input, fields.name_of("type"), " is ", in_quotes(type),
        ", which prun does not have; it reads byte-level BPE such as that of GPT-2, Llama 3 and Qwen2");
  }

  void read_normalizer() {
    const JsonValue* const value = file_.take("normalizer");
    if (!value) return;
    Fields normalizer(*value, place("normalizer"));
    if (normalizer.text("type") != "NFC")
      throw_error(ErrorCode::bad_input, normalizer.name_of("type"), " is ",
                  in_quotes(normalizer.text("type")), ", which prun does not have; it has NFC");
    normalizer.finish();
    tables_.normal_form.emplace();
  }

  // --- vocabulary and merges

  void read_model() {
    Fields model(file_.need("model"), place("model"));
    if (model.take("type") && model.text("type") != "BPE") refuse_type(model, model.text("type"));
    for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
      model.expect_off(name);
    model.ignore({"unk_token", "fuse_unk"});  // each byte is a token: nothing is unknown
    const JsonValue& vocabulary = model.need("vocab");
    if (!vocabulary.is_object()) model.refuse("vocab", "is not an object; the file is damaged");
    const JsonArray* const added = added_tokens();
    const std::size_t most = 2 * (vocabulary.as_object().members().size() + (added ? added->size() : 0));
    for (const JsonMember& member : vocabulary.as_object().members())
      add_token(member.name, id_of(member.value, member.name, most));
    find_bytes(model);
    if (model.flag("ignore_merges", false))
      for (const auto& [token, id] : ids_)
        if (std::optional<std::string> bytes = letters_.decode(token)) tables_.whole.emplace(*bytes, id);
    read_merges(model, model.array("merges"));
    model.finish();
  }

  const JsonArray* added_tokens() {
    return file_.take("added_tokens") ? &file_.array("added_tokens") : nullptr;
  }

  // Ids far beyond the number of tokens would make a table of nothing.
  TokenId id_of(const JsonValue& value, const std::string& token, std::size_t most) const {
    if (!value.is_integer() || value.as_double() < 0 || value.as_double() >= static_cast<double>(most))
      throw_error(ErrorCode::bad_input, source_, ": token ", in_quotes(token),
                  " has no id that fits the number of tokens; the file is damaged");
    return static_cast<TokenId>(value.as_int64());
  }

  void add_token(const std::string& token, TokenId id) {
    const auto at = static_cast<std::size_t>(id);
    if (token.empty())
      throw_error(ErrorCode::bad_input, source_, ": token ", id, " has no text; the file is damaged");
    if (at >= tables_.tokens.size()) tables_.tokens.resize(at + 1);
    if (!tables_.tokens[at].empty())
      throw_error(ErrorCode::bad_input, source_, ": token ", in_quotes(token),
                  " and another one have the id ", id, "; the file is damaged");
    tables_.tokens[at] = letters_.decode(token).value_or(token);
    ids_.emplace(token, id);
  }

  void find_bytes(const Fields& model) {
    std::array<bool, 256> found{};
    for (const auto& [token, id] : ids_) {
      const std::optional<std::string> bytes = letters_.decode(token);
      if (!bytes || bytes->size() != 1) continue;
      const auto byte = static_cast<unsigned char>(bytes->front());
      tables_.bytes[byte] = id;
      found[byte] = true;
    }
    const auto missing = std::find(found.begin(), found.end(), false);
    if (missing != found.end())
      model.refuse("vocab", detail::concat("has no token for the byte ", missing - found.begin(),
                                           "; prun reads byte-level BPE, which has one for each"));
  }

  void read_merges(const Fields& model, const JsonArray& merges) {
    tables_.merges = MergeTable(merges.size());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = pair_of(model, merges[rank], rank);
      const auto a = ids_.find(left), b = ids_.find(right), both = ids_.find(left + right);
      if (a == ids_.end() || b == ids_.end() || both == ids_.end())
        throw_error(ErrorCode::bad_input, model.name_of("merges"), " has ", in_quotes(left), " and ",
                    in_quotes(right), " at ", rank,
                    ", which are not tokens, or not together; the file is damaged");
      tables_.merges.set(a->second, b->second, {static_cast<std::uint32_t>(rank), both->second});
    }
  }

  // ["a", "b"], or "a b" as older files have it.
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

  // --- added tokens

  void read_added_tokens() {
    const JsonArray* const list = added_tokens();
    if (!list) return;
    for (std::size_t i = 0; i < list->size(); ++i)
      add_added_token(Fields((*list)[i], place("added_tokens." + std::to_string(i))),
                      ids_.size() + list->size());
  }

  // The package gives new texts the next id, whatever the file says; so another one would be misleading.
  void add_added_token(Fields fields, std::size_t most) {
    for (const char* name : {"single_word", "lstrip", "rstrip"}) fields.expect_off(name);
    AddedToken token{fields.text("content"), 0, fields.flag("special", false),
                     fields.flag("normalized", true)};
    token.id = id_of(fields.need("id"), token.text, 2 * most);
    fields.finish();
    const auto known = ids_.find(token.text);
    const TokenId expected =
        known != ids_.end() ? known->second : static_cast<TokenId>(tables_.tokens.size());
    if (token.id != expected)
      throw_error(ErrorCode::bad_input, fields.where(), ": ", in_quotes(token.text), " has the id ", token.id,
                  ", where ", expected, " would be its turn; the file is damaged");
    if (known == ids_.end()) add_token(token.text, token.id);
    std::string normal;
    if (token.normalized && tables_.normal_form) token.text = tables_.normal_form->of(token.text, normal);
    tables_.added.push_back(std::move(token));
  }

  // --- what comes before and after

  void read_pre_tokenizer() {
    Fields fields(file_.need("pre_tokenizer"), place("pre_tokenizer"));
    const std::string& type = fields.text("type");
    if (type == "ByteLevel") {
      if (!read_byte_level(fields))
        fields.refuse("use_regex", "is false and nothing else splits words; prun has no such tokenizer");
      tables_.words = WordRules::gpt2;
    } else if (type == "Sequence") {
      read_split_sequence(fields);
    } else {
      refuse_type(fields, type);
    }
  }

  // Whether it splits words itself.
  static bool read_byte_level(Fields& fields) {
    fields.expect_off("add_prefix_space");
    fields.ignore({"type", "trim_offsets"});
    const bool splits = fields.flag("use_regex", true);
    fields.finish();
    return splits;
  }

  // A Split by an expression, and ByteLevel, which does not split then.
  void read_split_sequence(Fields& fields) {
    const JsonArray& list = fields.array("pretokenizers");
    fields.finish();
    if (list.size() != 2)
      fields.refuse("pretokenizers", "is not Split and ByteLevel; prun has no other sequence of them");
    Fields split(list[0], place("pre_tokenizer.0")), bytes(list[1], place("pre_tokenizer.1"));
    if (split.text("type") != "Split") refuse_type(split, split.text("type"));
    if (bytes.text("type") != "ByteLevel") refuse_type(bytes, bytes.text("type"));
    if (read_byte_level(bytes))
      bytes.refuse("use_regex", "is true behind a Split; prun has no such tokenizer");
    read_split(split);
  }

  void read_split(Fields& split) {
    if (split.text("behavior") != "Isolated")
      split.refuse("behavior", "is not Isolated, which is the only one that prun has");
    split.expect_off("invert");
    Fields pattern(split.need("pattern"), split.where() + ".pattern");
    const std::string& expression = pattern.text("Regex");
    pattern.finish();
    split.finish();
    const std::optional<WordRules> rules = word_rules_of(expression);
    if (!rules)
      throw_error(ErrorCode::bad_input, pattern.where(), " ", in_quotes(expression),
                  " is none that prun knows; it has those of GPT-2, Llama 3 and Qwen2");
    tables_.words = *rules;
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
    } else if (type == "Sequence") {
      const JsonArray& list = fields.array("processors");
      for (std::size_t i = 0; i < list.size(); ++i)
        read_processor(Fields(list[i], fields.where() + "." + std::to_string(i)));
    } else {
      refuse_type(fields, type);
    }
    fields.finish();
  }

  // Special tokens in front of a text; documents get their end from us.
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
      if (text_came) piece.refuse("SpecialToken", "comes after the text, which prun does not have");
      Fields named(special.need(token.text("id")), special.where());
      for (const JsonValue& id : named.array("ids"))
        tables_.prefix.push_back(id_of(id, token.text("id"), tables_.tokens.size()));
    }
  }

  void read_decoder() {
    Fields fields(file_.need("decoder"), place("decoder"));
    if (fields.text("type") != "ByteLevel") refuse_type(fields, fields.text("type"));
  }

  const std::string& source_;
  Fields file_;
  const ByteLetters letters_;
  std::unordered_map<std::string, TokenId> ids_;  // by the text in the file
  TokenizerTables tables_;
};

}  // namespace

TokenizerTables read_tokenizer_json(std::string_view json, const std::string& source) {
  return Reader(parse_json(json, source), source).read();
}

}  // namespace prun
