// Conversations as transformers' apply_chat_template makes them, and TRL's masks of what the assistant writes
// (tests/chat/make_fixtures).
#include "chat/chat_encoder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

using chat::ChatEncoder;
using chat::ChatFormat;
using chat::Conversation;
using chat::EncodedChat;
using chat::Learned;
using chat::read_conversation;
using chat::Speaker;

std::vector<JsonValue> lines_of(const std::string& name) {
  std::ifstream file(PRUN_TEST_FIXTURES "/chat/" + name);
  std::vector<JsonValue> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(parse_json(line, name));
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

ChatFormat format_of(const std::string& kind, const std::string& name) {
  return {PRUN_TEST_FIXTURES "/chat/" + kind, name};
}

Conversation conversation_of(const std::string& json) {
  return read_conversation(parse_json(json, "it"), "it:1");
}

std::string mask_of(const EncodedChat& encoded) {
  std::string mask;
  for (const bool learned : encoded.learned) mask += learned ? '1' : '0';
  return mask;
}

class Chat : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Templates, Chat, testing::Values("chatml", "llama3", "mistral", "gemma"),
                         [](const auto& kind) { return std::string(kind.param); });

// Row by row; a row without an entry is a conversation that the template refuses.
void expect_as_transformers(const std::string& kind, const std::string& name, const char* entry) {
  const ChatFormat format = format_of(kind, name);
  ChatEncoder encoder(format);
  const std::vector<JsonValue> chats = lines_of("chats.jsonl"), rows = lines_of(kind + ".expected");
  ASSERT_EQ(chats.size(), rows.size());
  std::size_t compared = 0;
  for (std::size_t i = 0; i < chats.size(); ++i) {
    const Conversation conversation = read_conversation(chats[i], "chats");
    const JsonValue* const expected = rows[i].find(entry);
    if (!expected) {
      EXPECT_THROW(encoder.encode(conversation), Error) << i;
      continue;
    }
    const EncodedChat encoded = encoder.encode(conversation);
    std::vector<TokenId> ids;
    for (const JsonValue& id : expected->as_array()[0].as_array())
      ids.push_back(static_cast<TokenId>(id.as_int64()));
    EXPECT_EQ(encoded.tokens, ids) << i;
    EXPECT_EQ(mask_of(encoded), expected->as_array()[1].as_string()) << i;
    ++compared;
  }
  EXPECT_GT(compared, 40u);
}

TEST_P(Chat, BuiltInTemplatesAreTransformersAndTrls) {
  expect_as_transformers(GetParam(), GetParam(), "built_in");
}
TEST_P(Chat, TheTokenizersOwnTemplateIsTransformers) { expect_as_transformers(GetParam(), "own", "own"); }

TEST(Chat, ShareGptAndCompletionsAreTheSameConversation) {
  const ChatFormat format = format_of("chatml", "chatml");
  ChatEncoder encoder(format);
  const EncodedChat messages = encoder.encode(conversation_of(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"));
  const EncodedChat shared = encoder.encode(conversation_of(
      R"({"system":"s","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})"));
  const EncodedChat completion = encoder.encode(conversation_of(
      R"({"prompt":[{"role":"system","content":"s"},{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}]})"));
  EXPECT_EQ(messages.tokens, shared.tokens);
  EXPECT_EQ(messages.learned, shared.learned);
  EXPECT_EQ(messages.tokens, completion.tokens);
  EXPECT_EQ(messages.learned, completion.learned);
}

TEST(Chat, InstructionsAndNamesOfOtherFilesAreConversations) {
  const ChatFormat format = format_of("chatml", "chatml");
  ChatEncoder encoder(format);
  const struct {
    const char *line, *same;
  } cases[] = {
      {R"({"instruction":"add","input":"1 2","output":"3"})",
       R"({"messages":[{"role":"user","content":"add\n1 2"},{"role":"assistant","content":"3"}]})"},
      {R"({"instruction":"say","input":"","output":"a"})",
       R"({"messages":[{"role":"user","content":"say"},{"role":"assistant","content":"a"}]})"},
      {R"({"system":"s","instruction":"q","output":"a","history":[["x","y"]]})",
       R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"x"},{"role":"assistant","content":"y"},)"
       R"({"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"},
      {R"({"system":"","instruction":"q","output":"a","history":[]})",
       R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"},
      {R"({"system":"","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})",
       R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"},
      {R"({"system":"s","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})",
       R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"},
      {R"({"system":"s","conversations":[{"from":"system","value":"s"},{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})",
       R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"},
      {R"({"conversations":[{"from":"user","content":"q"},{"from":"chatgpt","value":"a"},{"from":"observation","value":"o"},)"
       R"({"from":"bard","value":"b"}]})",
       R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"tool","content":"o"},)"
       R"({"role":"assistant","content":"b"}]})"},
  };
  for (const auto& [line, same] : cases) {
    const EncodedChat one = encoder.encode(conversation_of(line)),
                      other = encoder.encode(conversation_of(same));
    EXPECT_EQ(one.tokens, other.tokens) << line;
    EXPECT_EQ(one.learned, other.learned) << line;
  }
}

// The reasoning is written in front of an answer, trimmed, or left out once others follow.
TEST(Chat, ReasoningIsLearnedOrSeenAlone) {
  const TempFolder folder;
  std::ifstream from(PRUN_TEST_FIXTURES "/chat/chatml/tokenizer.json");
  folder.write("tokenizer.json", std::string(std::istreambuf_iterator<char>(from), {}));
  const auto learned = [&](const std::string& answer, bool reasoning, Learned what = Learned::answers) {
    folder.write(
        "chat_template.jinja",
        "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>{{ m.content }}<|im_end|>{% else %}"
        "{% generation %}" +
            answer + "<|im_end|>{% endgeneration %}{% endif %}{% endfor %}");
    const ChatFormat format(folder.path(), "own");
    const EncodedChat encoded =
        ChatEncoder(format, what, reasoning)
            .encode(conversation_of(
                R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"4","reasoning":" 4 or 5 "},)"
                R"({"role":"user","content":"r"},{"role":"assistant","content":"b"}]})"));
    std::string text;
    for (std::size_t i = 0; i < encoded.tokens.size(); ++i)
      if (encoded.learned[i]) text += format.tokenizer().bytes(encoded.tokens[i]);
    return text;
  };
  const std::string written =
      "{% if m.thinking %}<think>{{ m.thinking | trim }}</think>{% endif %}{{ m.content }}";
  EXPECT_EQ(learned(written, true), "<think>4 or 5</think>4<|im_end|>b<|im_end|>");
  EXPECT_EQ(learned(written, false), "<think></think>4<|im_end|>b<|im_end|>");
  EXPECT_EQ(learned(written, false, Learned::all),
            "<|im_start|>q<|im_end|><think></think>4<|im_end|><|im_start|>r<|im_end|>b<|im_end|>");
  EXPECT_EQ(learned("{{ m.content }}", false), "4<|im_end|>b<|im_end|>");
  EXPECT_THROW(learned("{{ m.thinking }}{{ m.thinking }}", false), Error);
}

TEST(Chat, TextsAreTakenAsTheyAreAndEnd) {
  const ChatFormat format = format_of("llama3", "llama3");
  ChatEncoder encoder(format);
  const EncodedChat encoded =
      encoder.encode(conversation_of(R"({"prompt":"hello\n","completion":"the answer"})"));
  EXPECT_EQ(format.tokenizer().decode(encoded.tokens), "<|begin|>hello\nthe answer<|eot_id|>");
  std::string learned;
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i)
    if (encoded.learned[i]) learned += format.tokenizer().bytes(encoded.tokens[i]);
  EXPECT_EQ(learned, "the answer<|eot_id|>");
}

std::string learned_text(const std::string& json, Learned what, const char* name = "chatml") {
  const ChatFormat format = format_of("chatml", name);
  const EncodedChat encoded = ChatEncoder(format, what).encode(conversation_of(json));
  std::string learned;
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i)
    if (encoded.learned[i]) learned += format.tokenizer().bytes(encoded.tokens[i]);
  return learned;
}

TEST(Chat, WhatIsLearnedCanBeChosen) {
  const std::string two =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"r"},)"
      R"({"role":"assistant","content":"b"}]})";
  EXPECT_EQ(learned_text(two, Learned::answers), "a<|im_end|>\nb<|im_end|>\n");
  EXPECT_EQ(learned_text(two, Learned::last_answer), "b<|im_end|>\n");
  EXPECT_EQ(learned_text(two, Learned::last_answer, "own"), "b<|im_end|>\n");
  EXPECT_EQ(learned_text(two, Learned::all).size(),
            std::string("<|im_start|>user\nq<|im_end|>\n").size() * 2 +
                std::string("<|im_start|>assistant\na<|im_end|>\n").size() * 2);
  const std::string weighted =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":0},)"
      R"({"role":"user","content":"r"},{"role":"assistant","content":"b","weight":1}]})";
  for (const char* name : {"chatml", "own"})
    EXPECT_EQ(learned_text(weighted, Learned::answers, name), "b<|im_end|>\n") << name;
}

// Each message with what the template puts around it.
TEST(Chat, EachTokenIsOfTheRoleWhoseMessageItIs) {
  const ChatFormat format = format_of("chatml", "chatml");
  const EncodedChat encoded =
      ChatEncoder(format, Learned::all)
          .encode(
              conversation_of(R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},)"
                              R"({"role":"assistant","content":"a"},{"role":"user","content":"r"}]})"));
  ASSERT_EQ(encoded.roles.size(), encoded.tokens.size());
  std::map<Speaker, std::string> texts;
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i)
    texts[encoded.roles[i]] += format.tokenizer().bytes(encoded.tokens[i]);
  EXPECT_EQ(texts[Speaker::system], "<|im_start|>system\ns<|im_end|>\n");
  EXPECT_EQ(texts[Speaker::user], "<|im_start|>user\nq<|im_end|>\n<|im_start|>user\nr<|im_end|>\n");
  EXPECT_EQ(texts[Speaker::assistant], "<|im_start|>assistant\na<|im_end|>\n");
  EXPECT_EQ(texts.count(Speaker::other), 0u);
}

TEST(Chat, WhatIsLearnedAloneIsTheAssistants) {
  const ChatFormat format = format_of("chatml", "chatml");
  const EncodedChat encoded = ChatEncoder(format).encode(
      conversation_of(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"));
  ASSERT_EQ(encoded.roles.size(), encoded.tokens.size());
  for (std::size_t i = 0; i < encoded.tokens.size(); ++i)
    EXPECT_TRUE(!encoded.learned[i] || encoded.roles[i] == Speaker::assistant) << i;
}

TEST(Chat, PromptsAskForAnAnswer) {
  const ChatFormat format = format_of("gemma", "gemma");
  EXPECT_EQ(format.tokenizer().decode(ChatEncoder(format).encode_prompt(
                conversation_of(R"({"messages":[{"role":"user","content":"hello"}]})"))),
            "<bos><start_of_turn>user\nhello<end_of_turn>\n<start_of_turn>model\n");
}

std::string refusal(const std::string& json) {
  try {
    const ChatFormat format = format_of("mistral", "mistral");
    ChatEncoder(format).encode(conversation_of(json));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return "(no error)";
}

TEST(Chat, WhatIsNoConversationIsRefused) {
  const struct {
    const char *line, *says;
  } cases[] = {
      {"[]", "it:1: is not an object"},
      {R"({"text":"a"})", "neither messages, nor conversations, nor prompt and completion, nor instruction"},
      {R"({"prompt":"p","chosen":"a","rejected":"b"})",
       "it:1: is a pair of a preferred and a rejected answer, and prun has no preference training"},
      {R"({"conversations":[{"from":"human","value":"a"}],"chosen":{},"rejected":{}})",
       "it:1: is a pair of a preferred and a rejected answer"},
      {R"({"prompt":"p","completion":"c","label":false})",
       "it:1: has a label that says whether its completion is preferred"},
      {R"({"instruction":"a","output":"b","history":[["a"]]})", "'history' holds what is no pair of texts"},
      {R"({"messages":[]})", "holds no message"},
      {R"({"messages":[{"role":"user"}]})", "messages.0 has no text under 'content'"},
      {R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})",
       "messages.0 has a part of type 'image', and models of prun read texts alone"},
      {R"({"messages":[{"role":"user","content":["a"]}]})", "messages.0 has a part without 'type'"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages.0 has no text under 'text'"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":{}})", "'tools' is not a list"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":"{}"})", "'tools' is not a list"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":"[{"})", "it:1: 'tools'"},
      {R"({"messages":[{"role":"system","content":"a"}],"system":"b"})",
       "has another text under 'system' than in its first message"},
      {R"({"messages":[{"role":"developer","content":"a"}],"system":"b"})",
       "has another text under 'system' than in its first message"},
      {R"({"prompt":"a","completion":"b","system":"c"})",
       "has a text under 'system' beside texts that are used as they are"},
      {R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[]})",
       "'chat_template_kwargs' is not an object"},
      {R"({"messages":[{"role":"user","content":"a","n":18446744073709551615}]})", "beyond 64 bits"},
      {R"({"messages":[{"role":"user","content":"a","weight":0.5}]})", "(no error)"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"a","weight":0.5}]})",
       "messages.1 has a weight that is neither 0 nor 1"},
      {R"({"conversations":[{"from":"oracle","value":"a"}]})",
       "conversations.0 is from 'oracle', and prun knows human"},
      {R"({"messages":[{"role":"assistant","content":"a"}]})",
       "the template refuses the conversation: the roles must be user and assistant in turn"},
  };
  for (const auto& [line, says] : cases)
    EXPECT_NE(refusal(line).find(says), std::string::npos) << line << ": " << refusal(line);
}

// A template of a file, which writes what it sees.
std::string seen_by(const std::string& text, const std::string& line, const std::string& today = "") {
  const TempFolder folder;
  folder.write("it.jinja", text);
  const ChatFormat format(PRUN_TEST_FIXTURES "/chat/chatml", folder.path() + "/it.jinja", today);
  return ChatEncoder(format).text_of(conversation_of(line), false);
}

// Transformers 5 drops keys that are null, and passes reasoning under each of its names.
TEST(Chat, TemplatesSeeWhatThoseOfTransformersSee) {
  const std::string keys = "{% for m in messages %}{{ m | tojson }}{% endfor %}";
  EXPECT_EQ(
      seen_by(keys, R"({"messages":[{"role":"user","content":"a","name":null},)"
                    R"({"role":"assistant","content":null,"tool_calls":[{"n":1.0}],"reasoning":"r"}]})"),
      R"({"role": "user", "content": "a"})"
      R"({"thinking": "r", "role": "assistant", "tool_calls": [{"n": 1.0}], "reasoning": "r", "reasoning_content": "r"})");
  EXPECT_EQ(seen_by(keys, R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]})"),
            R"({"role": "user", "content": [{"type": "text", "text": "a"}]})");
  EXPECT_EQ(seen_by(keys, R"({"system":"s","messages":[{"role":"developer","content":"s"}]})"),
            R"({"role": "developer", "content": "s"})");
  const std::string rest = "{{ tools }} {{ documents | tojson }} {{ enable_thinking }}";
  EXPECT_EQ(seen_by(rest, R"({"messages":[{"role":"user","content":"a"}]})"), "None null ");
  EXPECT_EQ(
      seen_by(rest, R"({"messages":[{"role":"user","content":"a"}],"tools":[],"documents":[{"text":"t"}],)"
                    R"("chat_template_kwargs":{"enable_thinking":false}})"),
      "[] [{\"text\": \"t\"}] False");
  for (const auto& [tools, seen] :
       {std::pair(R"("[{\"n\":1.0}]")", "[{'n': 1.0}]"), {R"("")", "None"}, {R"("null")", "None"}})
    EXPECT_EQ(seen_by("{{ tools }}",
                      std::string(R"({"messages":[{"role":"user","content":"a"}],"tools":)") + tools + "}"),
              seen);
}

TEST(Chat, TheDayIsTheRecipes) {
  const std::string line = R"({"messages":[{"role":"user","content":"a"}]})";
  EXPECT_EQ(seen_by("{{ strftime_now('%d %b %Y') }}", line, "2026-02-28"), "28 Feb 2026");
  EXPECT_THROW(seen_by("{{ strftime_now('%d %b %Y') }}", line), Error);
  for (const char* day : {"2026-02-29", "2026-2-28", "28.02.2026", "2026-13-01", "0000-01-01"})
    EXPECT_THROW(seen_by("a", line, day), Error) << day;
}

// An answer that is written otherwise once others follow.
TEST(Chat, TemplatesThatChangeWhatWasWrittenAreRefused) {
  const TempFolder folder;
  std::ifstream from(PRUN_TEST_FIXTURES "/chat/chatml/tokenizer.json");
  folder.write("tokenizer.json", std::string(std::istreambuf_iterator<char>(from), {}));
  folder.write("chat_template.jinja",
               "{% for m in messages %}{{ m.content if loop.last else m.content | upper }}{% endfor %}");
  const ChatFormat format(folder.path(), "own");
  ChatEncoder encoder(format);
  const Conversation two = conversation_of(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"r"}]})");
  try {
    encoder.encode(two);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("chat_template.jinja: cannot tell what the assistant writes: message 1 is rendered "
                        "otherwise"),
              std::string::npos)
        << error.what();
  }
}

// Behind a token of its own an answer begins with the space that the tokenizer puts in front, which is a
// piece by itself before a letter that no piece joins to it: the model has to write it.
TEST(Chat, ALoneSpacePieceInFrontOfAnAnswerIsLearned) {
  const TempFolder folder;
  std::ifstream from(PRUN_TEST_FIXTURES "/chat/mistral/tokenizer.json");
  folder.write("tokenizer.json", std::string(std::istreambuf_iterator<char>(from), {}));
  for (const char* answer : {"{{ m.content }}", "{% generation %}{{ m.content }}{% endgeneration %}"}) {
    folder.write("chat_template.jinja",
                 std::string("{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}<|end|>"
                             "{% else %}") +
                     answer + "{% endif %}{% endfor %}");
    const ChatFormat format(folder.path(), "own");
    const EncodedChat encoded = ChatEncoder(format).encode(conversation_of(
        R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"7"}]})"));
    const std::size_t count = encoded.tokens.size();
    ASSERT_GT(count, 3u);
    ASSERT_EQ(format.tokenizer().bytes(encoded.tokens[count - 2]), " ");
    EXPECT_EQ(mask_of(encoded), std::string(count - 2, '0') + "11") << answer;
  }
}

TEST(Chat, AConversationThatBeginsWithTheAssistantSaysWhatToDo) {
  const std::string begins =
      R"({"messages":[{"role":"assistant","content":"a"},{"role":"user","content":"q"}]})";
  EXPECT_EQ(learned_text(begins, Learned::answers), "a<|im_end|>\n");
  const TempFolder folder;
  std::ifstream from(PRUN_TEST_FIXTURES "/chat/chatml/tokenizer.json");
  folder.write("tokenizer.json", std::string(std::istreambuf_iterator<char>(from), {}));
  folder.write(
      "chat_template.jinja",
      "{% if messages[0].role != 'system' %}be kind {% endif %}{% for m in messages %}{{ m.content }}"
      "{% endfor %}");
  const ChatFormat format(folder.path(), "own");
  try {
    ChatEncoder(format).encode(conversation_of(begins));
    ADD_FAILURE();
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(said.find("chat_template.jinja: cannot tell where message 0, the assistant's, begins"),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("begin with a message of the user"), std::string::npos) << said;
  }
}

TEST(Chat, ABuiltInTemplateNeedsItsTokens) {
  EXPECT_THROW(format_of("gemma", "chatml"), Error);
  EXPECT_THROW(format_of("gemma", "vicuna"), Error);
  EXPECT_THROW(ChatFormat(PRUN_TEST_FIXTURES "/tokenizer/gpt2.json", "own"), Error);
}

}  // namespace
}  // namespace prun::test
