#include "chat/chat_encoder.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "prun/error.hpp"
#include "tokenizer/letters.hpp"

namespace prun::chat {
namespace {

// ------------------------------------------------------------------- built in
// Templates that are known by name, with what the assistant writes in {% generation %}.

struct BuiltIn {
  std::string_view name;
  std::string_view text;
  // These are the tokens that it calls bos_token and eos_token, where a tokenizer does not name its own.
  std::string_view bos, eos;
  // Lists texts that it writes and that must be single tokens.
  std::array<std::string_view, 3> tokens;
};

constexpr BuiltIn built_ins[] = {
    {"chatml",
     R"({%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{{- message.content + '<|im_end|>\n' }}
{%- endgeneration %}
{%- else %}
{{- message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %})",
     "",
     "<|im_end|>",
     {"<|im_start|>", "<|im_end|>"}},
    {"llama3",
     R"({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{{- message.content | trim + '<|eot_id|>' }}
{%- endgeneration %}
{%- else %}
{{- message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})",
     "<|begin_of_text|>",
     "<|eot_id|>",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {"mistral",
     R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}
{{- raise_exception('the roles must be user and assistant in turn, and this template has no others') }}
{%- endif %}
{%- if message.role == 'user' %}
{{- '[INST] ' + message.content + ' [/INST]' }}
{%- else %}
{%- generation %}
{{- message.content + eos_token }}
{%- endgeneration %}
{%- endif %}
{%- endfor %})",
     "<s>",
     "</s>",
     {}},
    {"gemma",
     R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}
{{- raise_exception('the roles must be user and assistant in turn, and this template has no others') }}
{%- endif %}
{%- if message.role == 'user' %}
{{- '<start_of_turn>user\n' + message.content | trim + '<end_of_turn>\n' }}
{%- else %}
{{- '<start_of_turn>model\n' }}
{%- generation %}
{{- message.content | trim + '<end_of_turn>\n' }}
{%- endgeneration %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\n' }}
{%- endif %})",
     "<bos>",
     "<end_of_turn>",
     {"<start_of_turn>", "<end_of_turn>"}},
};

const BuiltIn* find_built_in(std::string_view name) {
  for (const BuiltIn& one : built_ins)
    if (one.name == name) return &one;
  return nullptr;
}

std::vector<std::string> names_of_built_in() {
  std::vector<std::string> names;
  for (const BuiltIn& one : built_ins) names.emplace_back(one.name);
  return names;
}

// ------------------------------------------------------------------- chat encoder

namespace fs = std::filesystem;

constexpr std::size_t longest_config = std::size_t{64} << 20;

fs::path folder_of_tokenizer(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? path : fs::absolute(path).parent_path();
}

// Returns tokenizer_config.json, or an object without members.
JsonValue config_of(const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  if (std::error_code ignored; !fs::exists(file, ignored)) return JsonValue(JsonObject());
  JsonValue config = parse_json(whole_file(file, longest_config), file.string());
  if (!config.is_object())
    throw_error(ErrorCode::bad_input, file.string(), ": is not an object; it is damaged");
  return config;
}

// Reads texts of tokens under bos_token and so on: they stand by themselves, or under `content`.
Dict variables_of(const JsonValue& config, const BuiltIn* built_in) {
  Dict variables;
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token"}) {
    const JsonValue* token = config.find(name);
    if (token && token->is_object()) token = token->find("content");
    if (token && token->is_string()) variables.set(name, Value(token->as_string()));
  }
  if (!built_in) return variables;
  if (!variables.find("bos_token") && !built_in->bos.empty())
    variables.set("bos_token", Value(std::string(built_in->bos)));
  if (!variables.find("eos_token")) variables.set("eos_token", Value(std::string(built_in->eos)));
  return variables;
}

// Several templates have names; the one called default is meant.
const JsonValue* default_template(const JsonValue& named) {
  if (!named.is_array()) return &named;
  for (const JsonValue& one : named.as_array())
    if (one.is_object() && one.find("name") && one.find("name")->is_string() &&
        one.find("name")->as_string() == "default")
      return one.find("template");
  return nullptr;
}

Template own_template(const fs::path& folder, const JsonValue& config) {
  const fs::path file = folder / "chat_template.jinja";
  if (std::error_code ignored; fs::exists(file, ignored))
    return {whole_file(file, longest_config), file.string()};
  const JsonValue* text = config.find("chat_template");
  if (text) text = default_template(*text);
  if (!text || !text->is_string())
    throw_error(ErrorCode::not_found, folder.string(),
                " has no template of conversations, neither in chat_template.jinja nor in "
                "tokenizer_config.json; name one: ",
                join(names_of_built_in(), ", "));
  return {text->as_string(), (folder / "tokenizer_config.json").string() + ": chat_template"};
}

Template template_of(const fs::path& folder, const JsonValue& config, const std::string& name) {
  if (name == "own") return own_template(folder, config);
  if (const BuiltIn* const found = find_built_in(name)) return {found->text, "the template " + name};
  if (std::error_code ignored; fs::is_regular_file(name, ignored))
    return {whole_file(name, longest_config), name};
  throw_error(ErrorCode::bad_input, "there is no template ", in_quotes(name), "; there are own, ",
              join(names_of_built_in(), ", "), ", and files");
}

// A built-in template's tokens must be the tokenizer's, else they would be spelled.
void check_tokens(const Tokenizer& tokenizer, const Dict& variables, const BuiltIn& of) {
  const auto check = [&](std::string_view token) {
    if (!token.empty() && !tokenizer.find_added(token))
      throw_error(ErrorCode::bad_input, "the template ", of.name, " writes ", in_quotes(token),
                  ", which is no token of the tokenizer by itself; name another template");
  };
  for (const std::string_view token : of.tokens) check(token);
  for (const char* name : {"bos_token", "eos_token"})
    if (const Value* const value = variables.find(name)) check(*value->as<std::string>());
}

}  // namespace

ChatFormat::ChatFormat(const fs::path& path, const std::string& name, const std::string& today)
    : tokenizer_(Tokenizer::load(path)),
      variables_(variables_of(config_of(folder_of_tokenizer(path)), find_built_in(name))),
      template_(template_of(folder_of_tokenizer(path), config_of(folder_of_tokenizer(path)), name)),
      today_(read_day(today)) {
  if (!today.empty() && !today_)
    throw_error(ErrorCode::bad_input, in_quotes(today),
                " is no day; write year, month and day as 2026-07-31");
  if (const BuiltIn* const built_in = find_built_in(name)) check_tokens(tokenizer_, variables_, *built_in);
  const Value* const end = variables_.find("eos_token");
  const auto* const text = end ? end->as<std::string>() : nullptr;
  end_ = text ? tokenizer_.find_added(*text).value_or(-1) : tokenizer_.end_of_text().value_or(-1);
}

namespace {

Speaker role_of(const Message& message) {
  const Dict* const said = message.value.dict();
  const Value* const role = said ? said->find("role") : nullptr;
  const auto* const name = role ? role->as<std::string>() : nullptr;
  if (!name) return Speaker::other;
  if (*name == "system") return Speaker::system;
  if (*name == "user") return Speaker::user;
  if (*name == "assistant") return Speaker::assistant;
  return *name == "tool" ? Speaker::tool : Speaker::other;
}

}  // namespace

std::optional<Learned> learned_named(std::string_view name) {
  if (name == "answers") return Learned::answers;
  if (name == "last") return Learned::last_answer;
  if (name == "all") return Learned::all;
  return {};
}

ChatEncoder::ChatEncoder(const ChatFormat& format, Learned learned, bool reasoning)
    : format_(format), learned_(learned), reasoning_(reasoning), encoder_(format.tokenizer()) {}

// Renders the first messages of a conversation, and the prompt for the next answer.
Rendered ChatEncoder::render(const Conversation& conversation, std::size_t messages, bool prompt) const {
  Dict variables = format_.variables();
  List list;
  for (std::size_t i = 0; i < messages; ++i) list.push_back(conversation.messages[i].value);
  for (const char* name : {"tools", "documents"}) variables.set(name, Value(nullptr));
  for (const auto& [name, value] : conversation.variables.entries()) variables.set(name, value);
  variables.set("messages", Value::of(std::move(list)));
  variables.set("add_generation_prompt", Value(prompt));
  return format_.chat_template().render(variables, format_.today());
}

// Renders what stands in front of an answer. Many templates look at the first message, where there may be
// none.
Rendered ChatEncoder::before_answer(const Conversation& conversation, std::size_t message) const {
  try {
    return render(conversation, message, !format_.chat_template().marks_generation());
  } catch (const Error& error) {
    if (message > 0 || error.code() != ErrorCode::bad_input) throw;
    throw_error(
        ErrorCode::bad_input, format_.chat_template().name(),
        ": cannot tell where message 0, the assistant's, begins: the template writes no prompt without a "
        "message (",
        error.what(), "); begin with a message of the user or the system, or put {% generation %} and ",
        "{% endgeneration %} around the assistant's in the template");
  }
}

// Returns one span for each answer that is learned. A template that does not mark them must write each
// message the same whatever follows: then an answer is what comes after the prompt that asks for it.
std::vector<Span> ChatEncoder::answers_of(const Conversation& conversation, const Rendered& all) const {
  std::vector<Span> spans;
  const bool marks = format_.chat_template().marks_generation();
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    if (!conversation.messages[i].is_learned) continue;
    const Rendered before = before_answer(conversation, i), after = render(conversation, i + 1, false);
    const bool alike =
        marks ? after.generated.size() <= all.generated.size() : all.text.starts_with(after.text);
    if (!alike || !after.text.starts_with(before.text))
      throw_error(ErrorCode::bad_input, format_.chat_template().name(),
                  ": cannot tell what the assistant writes: message ", i,
                  " is rendered otherwise once others follow it; put {% generation %} and {% endgeneration "
                  "%} around it in the template");
    if (!marks)
      spans.push_back({before.text.size(), after.text.size()});
    else
      spans.insert(spans.end(), all.generated.begin() + static_cast<std::ptrdiff_t>(before.generated.size()),
                   all.generated.begin() + static_cast<std::ptrdiff_t>(after.generated.size()));
  }
  return spans;
}

std::vector<Span> ChatEncoder::learned_of(const Conversation& conversation, const Rendered& all) const {
  const bool every =
      std::all_of(conversation.messages.begin(), conversation.messages.end(),
                  [](const Message& message) { return message.is_learned == message.is_answer; });
  if (learned_ == Learned::answers)
    return every && format_.chat_template().marks_generation() ? all.generated
                                                               : answers_of(conversation, all);
  Conversation last = conversation;
  bool found = false;
  for (std::size_t i = last.messages.size(); i-- > 0;) {
    last.messages[i].is_learned = last.messages[i].is_learned && !found;
    found = found || last.messages[i].is_learned;
  }
  return answers_of(last, all);
}

// Up to which byte the text is whose: a message is what the template writes more of once it is there. Where
// it writes that otherwise once others follow, or not at all without them, nobody can tell whose the rest is.
std::vector<std::pair<std::size_t, Speaker>> ChatEncoder::roles_of(const Conversation& conversation,
                                                                   const std::string& text) const {
  std::vector<std::pair<std::size_t, Speaker>> ends;
  try {
    for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
      const std::string upto = render(conversation, i + 1, false).text;
      if (!text.starts_with(upto) || (!ends.empty() && upto.size() < ends.back().first)) break;
      ends.emplace_back(upto.size(), role_of(conversation.messages[i]));
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input) throw;
  }
  ends.emplace_back(text.size(), Speaker::other);
  return ends;
}

// Finds where a template writes the reasoning of a message, by what it writes with a letter in its place: the
// span is what the letter replaces, so that a template may trim. It is empty where it does not write it.
Span ChatEncoder::reasoning_of(const Conversation& conversation, std::size_t message,
                               const std::string& text) const {
  constexpr std::string_view mark = "\x01";
  Conversation other = conversation;
  if (!replace_reasoning(other.messages[message], std::string(mark))) return {};
  const std::string written = text_of(other, false);
  if (written == text) return {};
  const std::size_t at = written.find(mark);
  const std::string_view before = std::string_view(written).substr(0, at);
  const std::string_view after =
      at == std::string::npos ? std::string_view() : std::string_view(written).substr(at + mark.size());
  if (at == std::string::npos || after.find(mark) != std::string::npos || !text.starts_with(before) ||
      !text.ends_with(after) || before.size() + after.size() > text.size())
    throw_error(ErrorCode::bad_input, format_.chat_template().name(),
                ": cannot find the reasoning of message ", message,
                " in the rendered text; set data.reasoning = \"learn\"");
  return {before.size(), text.size() - after.size()};
}

std::vector<Span> ChatEncoder::without_reasoning(std::vector<Span> spans, const Conversation& conversation,
                                                 const std::string& text) const {
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const Span reasoning = reasoning_of(conversation, i, text);
    std::vector<Span> kept;
    for (const Span& span : spans) {
      const Span before{span.begin, std::min(span.end, reasoning.begin)};
      const Span after{std::max(span.begin, reasoning.end), span.end};
      if (reasoning.begin == reasoning.end || before.end == span.end || after.begin == span.begin) {
        kept.push_back(span);
        continue;
      }
      if (before.begin < before.end) kept.push_back(before);
      if (after.begin < after.end) kept.push_back(after);
    }
    spans = std::move(kept);
  }
  return spans;
}

// With a tokenizer that changes letters nobody can tell either.
std::vector<Speaker> ChatEncoder::roles_of_tokens(const Conversation& conversation, const std::string& text,
                                                  std::span<const TokenId> tokens) const {
  std::vector<Speaker> roles(tokens.size(), Speaker::other);
  std::vector<Span> places;
  try {
    places = places_of(format_.tokenizer(), text, tokens);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input) throw;
    return roles;
  }
  const std::vector<std::pair<std::size_t, Speaker>> ends = roles_of(conversation, text);
  std::size_t at = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    while (at + 1 < ends.size() && ends[at].first <= places[i].begin) ++at;
    roles[i] = ends[at].second;
  }
  return roles;
}

EncodedChat ChatEncoder::encode(const Conversation& conversation) {
  if (conversation.is_text()) return encode_text(conversation);
  const Rendered all = render(conversation, conversation.messages.size(), false);
  const bool whole = learned_ == Learned::all;
  EncodedChat encoded;
  encoder_.append(all.text, encoded.tokens);
  if (whole)
    encoded.roles = roles_of_tokens(conversation, all.text, encoded.tokens);
  else
    encoded.roles.assign(encoded.tokens.size(), Speaker::assistant);
  if (whole && reasoning_) {
    encoded.learned.assign(encoded.tokens.size(), true);
    return encoded;
  }
  std::vector<Span> learned = whole ? std::vector<Span>{{0, all.text.size()}} : learned_of(conversation, all);
  if (!reasoning_) learned = without_reasoning(std::move(learned), conversation, all.text);
  std::size_t next = 0;  // of the spans that may be a token's
  for (const Span& place : places_of(format_.tokenizer(), all.text, encoded.tokens)) {
    while (next < learned.size() && learned[next].end <= place.begin) ++next;
    encoded.learned.push_back(next < learned.size() && learned[next].begin < place.end);
  }
  return encoded;
}

// The tokens of both together, and an end; those of the prompt alone are not learned.
EncodedChat ChatEncoder::encode_text(const Conversation& conversation) {
  if (format_.end() < 0)
    throw_error(ErrorCode::bad_input,
                "the tokenizer names no token that ends a text, which a completion needs; write messages");
  const std::span<const TokenId> prefix = format_.tokenizer().prefix();
  const std::string text = conversation.prompt + conversation.completion;
  EncodedChat encoded;
  encoder_.append(text, encoded.tokens);
  for (const Span& place : places_of(format_.tokenizer(), text, encoded.tokens)) {
    const bool completes = place.end > conversation.prompt.size();
    encoded.learned.push_back(learned_ == Learned::all || completes);
    encoded.roles.push_back(completes ? Speaker::assistant : Speaker::user);
  }
  encoded.tokens.insert(encoded.tokens.begin(), prefix.begin(), prefix.end());
  encoded.learned.insert(encoded.learned.begin(), prefix.size(), false);
  encoded.roles.insert(encoded.roles.begin(), prefix.size(), Speaker::other);
  encoded.tokens.push_back(format_.end());
  encoded.learned.push_back(true);
  encoded.roles.push_back(Speaker::assistant);
  return encoded;
}

std::string ChatEncoder::text_of(const Conversation& conversation, bool prompt) const {
  if (conversation.is_text()) return conversation.prompt + (prompt ? "" : conversation.completion);
  return render(conversation, conversation.messages.size(), prompt).text;
}

std::vector<TokenId> ChatEncoder::encode_prompt(const Conversation& conversation) {
  std::vector<TokenId> tokens;
  encoder_.append(text_of(conversation, true), tokens);
  return tokens;
}

namespace {

// ------------------------------------------------------------------- places
// A tokenizer says which tokens a text becomes and not where each stands. So the tokens' own bytes are laid
// along the text: each must be found where the one before it ends, but for a space that the tokenizer itself
// puts in front.

constexpr std::string_view space_mark = "\xE2\x96\x81";

class Ruler {
 public:
  Ruler(const Tokenizer& tokenizer, std::string_view text) : tokenizer_(tokenizer), text_(text) {
    for (const AddedToken& token : tokenizer.tables().added) added_.emplace(token.id, &token);
    puts_in_front_ = tokenizer.tables().normalizer.puts_in_front();
  }

  std::vector<Span> measure(std::span<const TokenId> tokens) {
    std::vector<Span> places;
    for (const TokenId token : tokens) {
      const auto added = added_.find(token);
      places.push_back(added == added_.end() ? pass(tokenizer_.bytes(token)) : pass_added(*added->second));
      at_front_ = added != added_.end();
    }
    if (at_ != text_.size()) lost();
    return places;
  }

 private:
  [[noreturn]] void lost() const {
    throw_error(ErrorCode::bad_input,
                "cannot tell which tokens are the assistant's: the tokenizer changes the text at byte ", at_,
                " of a conversation; use one that keeps letters as they are");
  }

  // Returns the bytes of the text that are a token's; `nowhere` where the token is not there. A mark of the
  // text is a space of the token's.
  std::size_t length_of(std::string_view token, std::size_t at) const {
    const std::size_t begin = at;
    for (const char byte : token) {
      if (at < text_.size() && text_[at] == byte)
        ++at;
      else if (byte == ' ' && text_.substr(at).starts_with(space_mark))
        at += space_mark.size();
      else
        return nowhere;
    }
    return at - begin;
  }

  Span pass(std::string_view token) {
    const bool has_space = token.starts_with(' ');
    std::size_t length = nowhere;
    if (at_front_ && puts_in_front_ && has_space) length = length_of(token.substr(1), at_);
    if (length == nowhere) length = length_of(token, at_);
    if (length == nowhere && has_space) length = length_of(token.substr(1), at_);
    if (length == nowhere) lost();
    const std::size_t begin = at_;
    at_ += length;
    // A piece that is only the space which the tokenizer puts in front stands at the letter behind it.
    return {begin, length == 0 ? begin + 1 : at_};
  }

  Span pass_added(const AddedToken& token) {
    const std::size_t begin = at_;
    if (token.takes_left) at_ += leading_spaces(text_.substr(at_));
    const std::size_t length = length_of(token.text, at_);
    if (length == nowhere) lost();
    at_ += length;
    if (token.takes_right) at_ += leading_spaces(text_.substr(at_));
    return {begin, at_};
  }

  static constexpr std::size_t nowhere = ~std::size_t{0};

  const Tokenizer& tokenizer_;
  std::string_view text_;
  std::unordered_map<TokenId, const AddedToken*> added_;
  std::size_t at_ = 0;
  bool at_front_ = true, puts_in_front_ = false;
};

// Where each byte of a text lies once it is in normal form: in front of a letter that it falls into. Pieces
// that nothing joins are looked at one by one.
std::vector<std::size_t> normal_places(const Normalizer& normalizer, std::string_view text) {
  std::vector<std::size_t> places;
  Normalizer::Scratch scratch;
  std::size_t done = 0;  // bytes of the normal form
  while (!text.empty()) {
    std::size_t end = decode_utf8(text).bytes;
    while (end < text.size() && !normalizer.may_cut_before(decode_utf8(text.substr(end)).value))
      end += decode_utf8(text.substr(end)).bytes;
    const std::string whole(normalizer.of(text.substr(0, end), scratch));
    for (std::size_t at = 0; at < end; at += decode_utf8(text.substr(at)).bytes) {
      const std::string_view before = normalizer.of(text.substr(0, at), scratch);
      const auto differ = std::mismatch(before.begin(), before.end(), whole.begin(), whole.end());
      places.resize(places.size() + decode_utf8(text.substr(at)).bytes,
                    done + static_cast<std::size_t>(differ.first - before.begin()));
    }
    done += whole.size();
    text.remove_prefix(end);
  }
  places.push_back(done);
  return places;
}

// Maps the other way round, outwards to whole letters.
Span before_normal(const std::vector<std::size_t>& places, const Span& span) {
  const std::size_t begins_at = *(std::upper_bound(places.begin(), places.end(), span.begin) - 1);
  const auto index_of = [&](std::size_t place) {
    return static_cast<std::size_t>(std::lower_bound(places.begin(), places.end(), place) - places.begin());
  };
  return {index_of(begins_at), index_of(span.end)};
}

}  // namespace

std::vector<Span> places_of(const Tokenizer& tokenizer, std::string_view text,
                            std::span<const TokenId> tokens) {
  const Normalizer& normalizer = tokenizer.tables().normalizer;
  Normalizer::Scratch scratch;
  const std::string_view normal = normalizer.works_by_letters() ? normalizer.of(text, scratch) : text;
  std::vector<Span> spans = Ruler(tokenizer, normal).measure(tokens);
  if (normal == text) return spans;
  const std::vector<std::size_t> places = normal_places(normalizer, text);
  for (Span& span : spans) span = before_normal(places, span);
  return spans;
}

}  // namespace prun::chat
