#include "tokenizer/tokenizer_json.hpp"

#include <algorithm>

#include "tokenizer/letters.hpp"
#include "tokenizer/tokenizer_parts.hpp"

namespace prun {

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

  // What takes white space beside it could take another's.
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

}  // namespace prun
