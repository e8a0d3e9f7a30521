// Runs the cases of tests/cases/FOLDER/NAME.toml. A case is a recipe whose first line says what must come of
// it:
//
//   # expect: equal                        every rank computes what one rank computes (prun verify)
//   # expect: equal-to OTHER.toml          its losses are those of the other recipe, bit for bit
//   # expect: refused KEY LINE:COLUMN      exit code 2, with a problem that names KEY at that place of the
//   case # expect: refused KEY                  the same, of a recipe that is refused once plugins and layout
//   are known # expect: plan FIELD VALUE             that number of `prun plan --json`, FIELD with dots
//   between names
//
// A case may `include` another file. Tokens and the folder of the run are the tests'. The whole
// text of a refusal stands in FOLDER/messages.golden; PRUN_BLESS=1 (tools/test --bless) rewrites it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "inspect/report.hpp"
#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::cases_test {
namespace {

namespace fs = std::filesystem;

const fs::path cases = fs::path(PRUN_SOURCE_DIR) / "tests" / "cases";

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw_error(ErrorCode::internal, "cannot read ", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the words behind "# expect:" in the first line.
std::vector<std::string> expected_of(const std::string& text, const fs::path& path) {
  std::istringstream line(text.substr(0, text.find('\n')));
  std::string hash, mark;
  line >> hash >> mark;
  PRUN_CHECK(hash == "#" && mark == "expect:", path.string(), " does not begin with '# expect:'");
  return {std::istream_iterator<std::string>(line), {}};
}

// Returns the recipe of a case, with the tests' tokens and run folder.
Recipe recipe_of(const fs::path& path) {
  const Recipe tiny = tiny_recipe();
  const std::vector<std::string> sets = {"run.out=" + tiny.text("run.out"), "run.fresh=true",
                                         "data.path=" + tiny.text("data.path")};
  return Recipe::load(path, sets, plugins().catalog());
}

// ---------------------------------------------------------------- golden messages

// Holds the messages of a folder by the name of their case.
class Golden {
 public:
  explicit Golden(const fs::path& folder) : path_(folder / "messages.golden") {
    if (!fs::exists(path_)) return;
    std::istringstream lines(text_of(path_));
    std::string line, name;
    while (std::getline(lines, line))
      if (line.starts_with("== "))
        name = line.substr(3);
      else
        messages_[name] += line + "\n";
  }
  const std::string& of(const std::string& name) { return messages_[name]; }
  void rewrite(const std::string& name, const std::string& message) {
    messages_[name] = message;
    std::ofstream file(path_);
    for (const auto& [of, text] : messages_)
      if (fs::exists(path_.parent_path() / (of + ".toml"))) file << "== " << of << "\n" << text;
  }

 private:
  fs::path path_;
  std::map<std::string, std::string> messages_;
};

void compare_with_golden(const fs::path& path, const std::string& message) {
  Golden golden(path.parent_path());
  const std::string name = path.stem().string(), text = message + "\n";
  if (golden.of(name) == text) return;
  if (std::getenv("PRUN_BLESS")) {
    std::printf("-- %s\n-%s+%s", path.c_str(), golden.of(name).c_str(), text.c_str());
    golden.rewrite(name, text);
  } else {
    EXPECT_EQ(text, golden.of(name)) << "if the new message is meant: tools/test --bless";
  }
}

// ---------------------------------------------------------------- what may be expected

// Leaves out what depends on where the build is and on which plugins it has.
std::string portable(std::string text, const std::string& folder) {
  for (std::size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
  text = std::regex_replace(text, std::regex("\n  looked in [^\n]*"), "");
  return std::regex_replace(text, std::regex("; there are [a-z0-9-]+, [^;\n]*"), "");
}

void expect_refused(const fs::path& path, const std::vector<std::string>& words) {
  ASSERT_GE(words.size(), 2u) << "refused KEY [LINE:COLUMN]";
  std::string message;
  try {
    const Assembly assembly(recipe_of(path), plugins());
    FAIL() << "it is not refused";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what();
    message = portable(error.what(), path.parent_path().string() + "/");
  }
  EXPECT_NE(message.find(words[1]), std::string::npos) << "'" << words[1] << "' is not in: " << message;
  if (words.size() > 2) {
    const std::string place = path.filename().string() + ":" + words[2] + ": error: ";
    EXPECT_NE(message.find(place), std::string::npos) << "'" << place << "' is not in: " << message;
  }
  compare_with_golden(path, message);
}

void expect_equal(const fs::path& path) {
  const LayoutVerdict verdict = verify_layout(recipe_of(path), plugins().places(), 3);
  EXPECT_GT(verdict.ranks, 1) << "the case has one rank, so that there is nothing to compare";
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

// Returns the losses of the first rank; parameters of other layouts have other shapes.
std::vector<double> losses_of(const fs::path& path) {
  const Recipe recipe = recipe_of(path);
  const auto steps = static_cast<std::size_t>(recipe.integer("run.steps"));
  std::vector<double> losses = run_ranks(recipe, static_cast<int>(steps)).at(0);
  losses.resize(steps);
  return losses;
}

void expect_equal_to(const fs::path& path, const std::vector<std::string>& words) {
  ASSERT_EQ(words.size(), 2u) << "equal-to OTHER.toml";
  EXPECT_EQ(losses_of(path), losses_of(path.parent_path() / words[1]));
}

void expect_planned(const fs::path& path, const std::vector<std::string>& words) {
  ASSERT_EQ(words.size(), 3u) << "plan FIELD VALUE";
  const Assembly assembly(recipe_of(path), plugins());
  nlohmann::json found = nlohmann::json::parse(plan_json(assembly, forecast(assembly, plugins(), {})));
  std::istringstream names(words[1]);
  for (std::string name; std::getline(names, name, '.');) {
    ASSERT_TRUE(found.is_object() && found.contains(name))
        << "no '" << name << "' in " << found.dump().substr(0, 2000);
    found = nlohmann::json(found[name]);
  }
  EXPECT_EQ(found.is_string() ? found.get<std::string>() : found.dump(), words[2]);
}

class Case : public testing::Test {
 public:
  explicit Case(fs::path path) : path_(std::move(path)) {}
  void TestBody() override {
    const std::vector<std::string> words = expected_of(text_of(path_), path_);
    const std::string& what = words.empty() ? "" : words[0];
    if (what == "refused")
      expect_refused(path_, words);
    else if (what == "equal")
      expect_equal(path_);
    else if (what == "equal-to")
      expect_equal_to(path_, words);
    else if (what == "plan")
      expect_planned(path_, words);
    else
      FAIL() << path_ << ": nothing is known of '" << what << "'; expect equal, equal-to, refused or plan";
  }

 private:
  fs::path path_;
};

// Cases are known before main() lists them.
const bool registered = [] {
  for (const fs::directory_entry& folder : fs::directory_iterator(cases)) {
    if (!folder.is_directory()) continue;
    for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
      const fs::path path = file.path();
      if (path.extension() != ".toml" || text_of(path).rfind("# expect:", 0) != 0) continue;
      testing::RegisterTest(folder.path().filename().c_str(), path.stem().c_str(), nullptr, nullptr,
                            path.c_str(), 1, [path]() -> testing::Test* { return new Case(path); });
    }
  }
  return true;
}();

TEST(Cases, AreFound) {
  EXPECT_TRUE(registered && testing::UnitTest::GetInstance()->total_test_count() > 40);
}

}  // namespace
}  // namespace prun::test::cases_test
