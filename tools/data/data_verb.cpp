// Implements prun data show RECIPE: it shows a sample as training gets it; and prun data render FILE.
#include "cli/command_table.hpp"
#include "data/rendered_chats.hpp"
#include "data/shown_sample.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

int show_command(const Arguments& arguments) {
  const Opened opened = open_recipe(arguments, arguments.words[1]);
  const ShownSample sample(*opened.recipe, *opened.plugins, arguments.number("--sample", 0, 0));
  sample.print(!arguments.has("--text"));
  return 0;
}

int render_command(const Arguments& arguments) {
  RenderWish wish;
  wish.chats = arguments.words[1];
  wish.tokenizer = *arguments.path("--tokenizer");
  const auto set = [&](const char* option, std::string& to) {
    if (const auto given = arguments.values.find(option); given != arguments.values.end()) to = given->second;
  };
  set("--template", wish.chat_template);
  set("--date", wish.date);
  set("--learn", wish.learn);
  wish.prompt = arguments.has("--prompt");
  if (const std::int64_t refused = print_rendered(wish); refused > 0)
    throw_error(ErrorCode::bad_input, refused, " conversations of ", wish.chats.string(),
                " are refused, for the reasons above");
  return 0;
}

}  // namespace

std::vector<Command> data_verb() {
  return {{"data render",
           "FILE",
           "conversations as a model reads them, in JSON: text, tokens, and which of them are learned",
           {{"--tokenizer", "FOLDER", "of the model, with its tokenizer.json", true},
            {"--template", "NAME|FILE", "chatml, llama3, mistral, gemma, or a file; own, the tokenizer's"},
            {"--date", "YEAR-MONTH-DAY", "the day that templates get for today"},
            {"--learn", "answers|last|all", "what is learned; answers"},
            {"--prompt", "", "up to where the model writes the next answer"}},
           render_command},
          {"data show",
           "RECIPE",
           "a sample of its data: the tokens, their text, and which of them are learned",
           {{"--sample", "N", "which one, in the order in which they lie; 0"},
            {"--text", "", "the text alone, without a line for each token"}},
           show_command}};
}

}  // namespace prun
