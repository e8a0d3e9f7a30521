#include "chat/chat_encoder.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "chat/built_in.hpp"
#include "prun/error.hpp"

namespace prun::chat {
namespace {

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

}  // namespace prun::chat
