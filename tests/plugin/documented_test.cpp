// docs/plugins.md is what an author has: the places it names exist, and it names every trait there is.
#include <algorithm>
#include <regex>

#include "plugin/traits.hpp"
#include "plugin_fixtures.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

std::string manual() { return test::contents(fs::path(PRUN_SOURCE_DIR) / "docs" / "plugins.md"); }

// Of prun's source or of an installation, whose headers the source keeps in core and whose plugins are those
// of the build.
bool exists(const std::string& place) {
  const fs::path source = PRUN_SOURCE_DIR;
  const fs::path roots[] = {source, source / "core", source / "core" / "include", PRUN_BUILD_DIR};
  return std::any_of(std::begin(roots), std::end(roots),
                     [&](const fs::path& root) { return fs::exists(root / place); });
}

// An author's own folders and the user's.
bool is_elsewhere(const std::string& place) { return place.starts_with("mine/") || place.starts_with("~/"); }

TEST(Manual, NamesPlacesThatExist) {
  const std::string text = manual();
  const std::regex place("[`\"(]([~A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)[`\")]");
  int found = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), place), end; at != end; ++at) {
    const std::string name = (*at)[1];
    if (is_elsewhere(name)) continue;
    ++found;
    EXPECT_TRUE(exists(name)) << name;
  }
  EXPECT_GE(found, 6);
}

TEST(Manual, NamesEveryTraitAndItsValues) {
  const std::string text = manual();
  for (const TraitRule& rule : trait_rules()) {
    const std::string head = "| " + std::string(rule.kind) + " | `" + std::string(rule.key) + "` |";
    const std::size_t begin = text.find(head);
    ASSERT_NE(begin, std::string::npos) << head;
    const std::string row = text.substr(begin, text.find('\n', begin) - begin);
    for (const std::string_view value : rule.values)
      EXPECT_TRUE(test::holds(row, "`" + std::string(value) + "`"));
  }
}

}  // namespace
}  // namespace prun
