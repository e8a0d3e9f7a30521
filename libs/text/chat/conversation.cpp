#include "chat/conversation.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun::chat {
namespace {

constexpr std::string_view names_of_reasoning[] = {"reasoning_content", "thinking", "reasoning"};

class LineReader {
 public:
  LineReader(const JsonValue& line, const std::string& place) : place_(place), line_(line) {}

  Conversation read() {
    if (!line_.is_object()) refuse("is not an object");
    refuse_preferences();
    read_variables();
    if (const JsonValue* const messages = find("messages")) {
      add_messages(*messages, "messages", true);
    } else if (const JsonValue* const shared = find("conversations")) {
      add_shared(*shared);
    } else if (find("prompt") && find("completion")) {
      read_completion(*find("prompt"), *find("completion"));
    } else if (find("instruction") && find("output")) {
      read_instruction();
    } else {
      refuse(
          "has neither messages, nor conversations, nor prompt and completion, nor instruction and output");
    }
    if (out_.messages.empty() && out_.prompt.empty() && out_.completion.empty()) refuse("holds no message");
    read_system();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw_error(ErrorCode::bad_input, place_, ": ", what,
                "; a line of conversations holds messages with role and content, conversations with from and "
                "value, prompt and completion, or instruction, input and output");
  }
  const JsonValue* find(std::string_view name) const {
    const JsonValue* const found = line_.find(name);
    return found && !found->is_null() ? found : nullptr;
  }
  const std::string& text_of(const JsonValue& message, const char* name, const std::string& where) const {
    const JsonValue* const value = message.is_object() ? message.find(name) : nullptr;
    if (!value || !value->is_string()) refuse(where + " has no text under '" + name + "'");
    return value->as_string();
  }

  // Refuses pairs, whose rejected text must not be learned, and completions whose label may say the same.
  void refuse_preferences() const {
    const bool pair = find("chosen") && find("rejected");
    if (pair || (find("label") && find("label")->kind() == JsonKind::boolean && find("completion")))
      throw_error(
          ErrorCode::bad_input, place_, ": ",
          pair ? "is a pair of a preferred and a rejected answer"
               : "has a label that says whether its completion is preferred",
          ", and prun has no preference training; to learn preferred answers, write them as messages");
  }

  // Some files have a list as its JSON in a text, which is empty or "null" where there is none.
  void read_list(const std::string& name, const JsonValue& list) {
    if (list.is_string()) {
      if (list.as_string().empty()) return;
      return read_list_of(name, parse_json(list.as_string(), place_ + ": '" + name + "'"));
    }
    read_list_of(name, list);
  }
  void read_list_of(const std::string& name, const JsonValue& list) {
    if (list.is_null()) return;
    if (!list.is_array()) refuse("'" + name + "' is not a list");
    out_.variables.set(name, Value::of(list));
  }

  // Reads the names that transformers passes to templates besides the messages.
  void read_variables() {
    for (const char* name : {"tools", "documents"})
      if (const JsonValue* const list = find(name)) read_list(name, *list);
    const JsonValue* const given = find("chat_template_kwargs");
    if (!given) return;
    if (!given->is_object()) refuse("'chat_template_kwargs' is not an object");
    for (const JsonMember& member : given->as_object().members())
      out_.variables.set(member.name, Value::of(member.value));
  }

  // 0 or 1 under `weight`, as some files have it for answers that are not to be learned.
  bool has_weight(const JsonValue& message, const std::string& where) const {
    const JsonValue* const weight = message.find("weight");
    if (!weight || weight->is_null()) return true;
    if (!weight->is_integer() || (weight->as_double() != 0 && weight->as_double() != 1))
      refuse(where + " has a weight that is neither 0 nor 1, which are all that prun has");
    return weight->as_double() == 1;
  }

  // Returns a message as templates of transformers see it: without what is null, and with its reasoning under
  // the names that these look for.
  static Value seen(const JsonValue& message) {
    Dict dict;
    const JsonValue* reasoning = nullptr;
    for (const std::string_view name : names_of_reasoning)
      if (const JsonValue* const found = message.find(name); found && !reasoning && !found->is_null())
        reasoning = found;
    const JsonValue* const thinking = message.find("thinking");
    if (reasoning && (!thinking || thinking->is_null())) dict.set("thinking", Value::of(*reasoning));
    for (const JsonMember& member : message.as_object().members())
      if (!member.value.is_null()) dict.set(member.name, Value::of(member.value));
    if (reasoning) dict.set("reasoning_content", Value::of(*reasoning));
    return Value::of(std::move(dict));
  }

  // A text, or a list of parts that are texts.
  void check_content(const JsonValue& content, const std::string& where) const {
    if (content.is_string()) return;
    if (!content.is_array()) refuse(where + " has no text under 'content'");
    for (const JsonValue& part : content.as_array()) {
      const JsonValue* const type = part.is_object() ? part.find("type") : nullptr;
      if (!type || !type->is_string()) refuse(where + " has a part without 'type' under 'content'");
      if (type->as_string() != "text")
        refuse(where + " has a part of type " + in_quotes(type->as_string()) +
               ", and models of prun read texts alone");
      text_of(part, "text", where);
    }
  }

  void add_message(const JsonValue& message, const std::string& where, bool learned) {
    const std::string& role = text_of(message, "role", where);
    const JsonValue* const calls = message.find("tool_calls");
    const JsonValue* const content = message.find("content");
    const bool has_content = content && !content->is_null(), has_calls = calls && !calls->is_null();
    if (!has_content && !has_calls) refuse(where + " has no text under 'content'");
    if (has_content) check_content(*content, where);
    const bool answer = role == "assistant";
    out_.messages.push_back({seen(message), answer, answer && learned && has_weight(message, where)});
  }

  void add_messages(const JsonValue& list, const std::string& name, bool learned) {
    if (!list.is_array()) refuse("'" + name + "' is not a list");
    for (std::size_t i = 0; i < list.as_array().size(); ++i)
      add_message(list.as_array()[i], name + "." + std::to_string(i), learned);
  }

  static Value message_of(const std::string& role, const std::string& content) {
    Dict message;
    message.set("role", Value(role));
    message.set("content", Value(content));
    return Value::of(std::move(message));
  }
  void add_text(const std::string& role, const std::string& content, bool learned) {
    const bool answer = role == "assistant";
    out_.messages.push_back({message_of(role, content), answer, answer && learned});
  }

  // A text under `system` stands in front of the messages, whatever form these have; an empty one is none. A
  // developer's message is a system's by another name: templates that know both take the first message as
  // either, and leave out a second one.
  void read_system() {
    const std::string text = find("system") ? text_of(line_, "system", "it") : "";
    if (text.empty()) return;
    if (out_.is_text()) refuse("has a text under 'system' beside texts that are used as they are");
    const Dict& first = *out_.messages.front().value.dict();
    const auto is_from = [&](const char* role) {
      return first.find("role")->equals(Value(std::string(role)));
    };
    if (!is_from("system") && !is_from("developer")) {
      out_.messages.insert(out_.messages.begin(), {message_of("system", text)});
      return;
    }
    const Value* const content = first.find("content");
    if (!content || !content->equals(Value(text)))
      refuse("has another text under 'system' than in its first message");
  }

  void add_shared(const JsonValue& list) {
    if (!list.is_array()) refuse("'conversations' is not a list");
    for (std::size_t i = 0; i < list.as_array().size(); ++i) {
      const JsonValue& message = list.as_array()[i];
      const std::string where = "conversations." + std::to_string(i);
      if (message.is_object() && message.find("role")) {
        add_message(message, where, true);
        continue;
      }
      const std::string role = shared_role(text_of(message, "from", where), where);
      const bool has_value = !message.is_object() || message.find("value") || !message.find("content");
      add_text(role, text_of(message, has_value ? "value" : "content", where), has_weight(message, where));
    }
  }

  std::string shared_role(const std::string& from, const std::string& where) const {
    if (from == "human" || from == "user") return "user";
    for (const char* answers : {"gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot"})
      if (from == answers) return "assistant";
    if (from == "observation") return "tool";
    if (from == "system" || from == "tool") return from;
    refuse(where + " is from " + in_quotes(from) +
           ", and prun knows human, user, gpt, assistant, chatgpt, bing, bard, model, bot, system, tool and "
           "observation");
  }

  // As Alpaca has it: an input goes below the instruction, and turns before under `history`.
  void read_instruction() {
    if (const JsonValue* const history = find("history")) {
      if (!history->is_array()) refuse("'history' is not a list");
      for (const JsonValue& turn : history->as_array()) {
        if (!turn.is_array() || turn.as_array().size() != 2 || !turn.as_array()[0].is_string() ||
            !turn.as_array()[1].is_string())
          refuse("'history' holds what is no pair of texts");
        add_text("user", turn.as_array()[0].as_string(), false);
        add_text("assistant", turn.as_array()[1].as_string(), true);
      }
    }
    const std::string input = find("input") ? text_of(line_, "input", "it") : "";
    add_text("user", text_of(line_, "instruction", "it") + (input.empty() ? "" : "\n" + input), false);
    add_text("assistant", text_of(line_, "output", "it"), true);
  }

  void read_completion(const JsonValue& prompt, const JsonValue& completion) {
    if (prompt.is_string() && completion.is_string()) {
      out_.prompt = prompt.as_string();
      out_.completion = completion.as_string();
      return;
    }
    add_messages(prompt, "prompt", false);
    add_messages(completion, "completion", true);
  }

  const std::string& place_;
  const JsonValue& line_;
  Conversation out_;
};

}  // namespace

bool replace_reasoning(Message& message, const std::string& by) {
  Dict changed;
  bool found = false;
  for (const auto& [name, value] : message.value.dict()->entries()) {
    const auto* const text = value.as<std::string>();
    const bool reasons = text && !trim(*text).empty() &&
                         std::find(std::begin(names_of_reasoning), std::end(names_of_reasoning), name) !=
                             std::end(names_of_reasoning);
    found = found || reasons;
    changed.set(name, reasons ? Value(by) : value);
  }
  if (found) message.value = Value::of(std::move(changed));
  return found;
}

Conversation read_conversation(const JsonValue& line, const std::string& place) {
  return LineReader(line, place).read();
}

}  // namespace prun::chat
