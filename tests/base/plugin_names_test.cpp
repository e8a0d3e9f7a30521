// The core names no plugin, but where recipes begin and where it says something to people: traits tell it
// what it must know of one. What counts is text in quotes that chooses a plugin, `plugin = "gpt"`, or has a
// name that means nothing else; a name that is a word of its own, such as text or data, is found in the first
// alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/text.hpp"

namespace prun::test::plugin_names_test {
namespace {

namespace fs = std::filesystem;

// Files and folders that may, by the end of their paths, and why.
const std::map<std::string, std::string> exempt = {
    {"assemble/model_program.hpp", "what programs begin with"},
    {"tools/bench", "what measures kernels of plugins, one by one"},
    {"convert", "what the options of other programs are called here"},
    {"plugin_check/scaffold.cpp", "what is written for an author"},
    {"plugin_check/scaffold_device.cpp", "what is written for an author"},
    {"demo/demo_verb.cpp", "the recipe that prun demo writes"},
    {"init/first_recipe.cpp", "the recipe that prun init writes"},
    {"init/first_recipe.hpp", "the recipe that prun init writes"},
    {"init/init_verb.cpp", "what prun init asks and takes"},
    {"cli/open_recipe.cpp", "what an imported checkpoint lacks of a recipe"},
    {"assemble/assembly.cpp", "a device that every machine has, as advice"},
    {"loop/local_ranks.cpp", "a device that every machine has, as advice"},
    {"assemble/recipe_checks.cpp", "a strategy that uses any axis, as advice"},
};
// Names that are words of the program as well, or kinds of hardware.
const std::set<std::string> words = {"data",     "text",      "tensor",      "tokens",  "zero",
                                     "pipeline", "offload",   "chat",        "console", "notify",
                                     "cpu",      "recompute", "interleaved", "loss",    "experts",
                                     "context",  "copies",    "fp8",         "average"};

std::string contents_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::set<std::string> names_of_plugins(const fs::path& source) {
  std::set<std::string> names = {"nvme", "offload"};  // which lie with all about tiers
  for (const auto& kind : fs::directory_iterator(source / "plugins"))
    if (kind.is_directory())
      for (const auto& plugin : fs::directory_iterator(kind))
        if (fs::exists(plugin.path() / "CMakeLists.txt")) names.insert(plugin.path().filename());
  return names;
}

// What stands in quotes, without comments and includes; a quote that is escaped is one.
std::vector<std::string> literals_of(const std::string& code) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < code.size(); ++at) {
    if (code.compare(at, 2, "//") == 0 || code.compare(at, 8, "#include") == 0) {
      at = std::min(code.find('\n', at), code.size());
    } else if (code[at] == '\'') {
      at = code.find('\'', at + (code[at + 1] == '\\' ? 3 : 2));
      if (at == std::string::npos) break;
    } else if (code.compare(at, 2, "R\"") == 0) {
      const std::size_t open = code.find('(', at);
      const std::string close = ")" + code.substr(at + 2, open - at - 2) + "\"";
      const std::size_t end = code.find(close, open);
      found.push_back(code.substr(open + 1, end - open - 1));
      at = end + close.size() - 1;
    } else if (code[at] == '"') {
      std::string& text = found.emplace_back();
      for (++at; at < code.size() && code[at] != '"'; ++at) text += code[at] == '\\' ? code[++at] : code[at];
    }
  }
  return found;
}

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; }

// As a word, and no ending of a file's name.
bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || (!is_letter(text[at - 1]) && text[at - 1] != '.');
    if (begins && (end == text.size() || !is_letter(text[end]))) return true;
  }
  return false;
}

// `plugin = "gpt"`, `plugin=gpt`
bool chooses(const std::string& text, const std::string& name) {
  for (std::size_t at = text.find("plugin"); at != std::string::npos; at = text.find("plugin", at + 1)) {
    std::size_t value = text.find_first_not_of(" ", at + 6);
    if (value == std::string::npos || text[value] != '=') continue;
    value = text.find_first_not_of(" \"'", value + 1);
    if (value != std::string::npos && text.compare(value, name.size(), name) == 0 &&
        (value + name.size() == text.size() || !is_letter(text[value + name.size()])))
      return true;
  }
  return false;
}

bool is_exempt(const std::string& file) {
  return std::any_of(exempt.begin(), exempt.end(), [&](const auto& one) {
    const std::string path = "/" + file, name = "/" + one.first;
    return path.ends_with(name) || path.find(name + "/") != std::string::npos;
  });
}

// Of the core and the programs about it, by their paths in the source.
std::map<std::string, std::string> code_of(const fs::path& source) {
  std::map<std::string, std::string> code;
  for (const char* root : {"core", "tools"})
    for (const auto& entry : fs::recursive_directory_iterator(source / root))
      if (entry.path().extension() == ".cpp" || entry.path().extension() == ".hpp")
        code[entry.path().lexically_relative(source)] = contents_of(entry.path());
  return code;
}

// "text: name" of each.
std::vector<std::string> named_in(const std::string& code, const std::set<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& literal : literals_of(code))
    for (const std::string& name : names)
      if (chooses(literal, name) || (words.count(name) == 0 && has_word(literal, name)))
        found.push_back(literal + ": " + name);
  return found;
}

TEST(PluginNames, AreNotInTheCore) {
  const std::set<std::string> names = names_of_plugins(PRUN_SOURCE_DIR);
  ASSERT_GT(names.size(), 20u);
  for (const auto& [file, code] : code_of(PRUN_SOURCE_DIR))
    if (!is_exempt(file))
      for (const std::string& found : named_in(code, names))
        ADD_FAILURE() << file << " names a plugin: " << found;
}

TEST(PluginNames, AreFoundWhereTheyAre) {
  const std::set<std::string> names = {"gpt", "text", "ucx"};
  EXPECT_EQ(named_in("f(\"plugin = \\\"text\\\"\");", names).size(), 1u);
  EXPECT_EQ(named_in("f(R\"(\nplugin = \"gpt\"\n)\");", names).size(), 1u);
  EXPECT_EQ(named_in("if (name == \"ucx\" || c == '\"') g(\"gpt\");", names).size(), 2u);
  EXPECT_TRUE(named_in("f(\"a text\");  // \"gpt\"\n#include \"gpt/gpt.hpp\"\n", names).empty());
  EXPECT_TRUE(named_in("open(\"log.gpt\", \"gpts\", \"plugin = \\\"texts\\\"\");", names).empty());
}

// An exemption for nothing would hide the next one.
TEST(PluginNames, ExemptionsAreNeeded) {
  const std::set<std::string> names = names_of_plugins(PRUN_SOURCE_DIR);
  std::set<std::string> needed;
  for (const auto& [file, code] : code_of(PRUN_SOURCE_DIR))
    if (is_exempt(file) && !named_in(code, names).empty()) needed.insert("/" + file);
  for (const auto& [name, why] : exempt)
    EXPECT_TRUE(std::any_of(
        needed.begin(), needed.end(),
        [&, part = "/" + name](const std::string& file) { return file.find(part) != std::string::npos; }))
        << name << ": " << why;
}

}  // namespace
}  // namespace prun::test::plugin_names_test
