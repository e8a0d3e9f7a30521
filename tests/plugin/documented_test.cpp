// docs/plugins.md and hooks.md are what an author has: the places they name exist, and every trait, hook and
// phase is there.
#include <algorithm>
#include <regex>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "plugin_fixtures.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

std::string hooks() { return test::contents(fs::path(PRUN_SOURCE_DIR) / "docs" / "hooks.md"); }
std::string manual() { return test::contents(fs::path(PRUN_SOURCE_DIR) / "docs" / "plugins.md"); }

// Of prun's source or of an installation, whose headers the source keeps in core and whose plugins are those
// of the build.
bool exists(const std::string& place) {
  const fs::path source = PRUN_SOURCE_DIR;
  const fs::path roots[] = {source, source / "core", source / "core" / "include", source / "docs",
                            PRUN_BUILD_DIR};
  return std::any_of(std::begin(roots), std::end(roots),
                     [&](const fs::path& root) { return fs::exists(root / place); });
}

// An author's own folders and the user's.
bool is_elsewhere(const std::string& place) { return place.starts_with("mine/") || place.starts_with("~/"); }

// The place in a clone of what is installed (cmake/prun_package.cmake).
std::string in_a_clone(std::string place) {
  const std::string installed = "share/doc/prun/";
  return place.starts_with(installed) ? place.substr(installed.size()) : place;
}

TEST(Manual, EachHeaderOfTheSdkSaysItsLicense) {
  int found = 0;
  for (const auto& header : fs::directory_iterator(fs::path(PRUN_SOURCE_DIR) / "core" / "include" / "prun")) {
    const std::string text = test::contents(header.path());
    EXPECT_TRUE(text.starts_with("// SPDX-License-Identifier: Apache-2.0\n")) << header.path();
    ++found;
  }
  EXPECT_GE(found, 20);
}

TEST(Manual, NamesPlacesThatExist) {
  const std::string text = manual();
  const std::regex place("[`\"(]([~A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)[`\")]");
  int found = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), place), end; at != end; ++at) {
    const std::string name = (*at)[1];
    if (is_elsewhere(name)) continue;
    ++found;
    EXPECT_TRUE(exists(in_a_clone(name))) << name;
  }
  EXPECT_GE(found, 6);
}

// A folder of an older epoch may still lie in a build, so that it exists says nothing.
TEST(Manual, NamesFoldersOfTodaysEpoch) {
  const std::regex folder("/plugins/([0-9]+)");
  int found = 0;
  for (const char* const top : {"docs", "examples"})
    for (const auto& page : fs::recursive_directory_iterator(fs::path(PRUN_SOURCE_DIR) / top)) {
      if (page.path().extension() != ".md" && page.path().extension() != ".toml") continue;
      const std::string text = test::contents(page.path());
      for (std::sregex_iterator at(text.begin(), text.end(), folder), end; at != end; ++at, ++found)
        EXPECT_EQ((*at)[1], std::to_string(plugin_epoch)) << page.path() << ": " << (*at)[0];
    }
  EXPECT_GE(found, 15);
}

// A minor version has one epoch and one layout of the interface: docs/plugins.md promises that to authors.
TEST(Version, EveryPluginOfAMinorVersionLoads) {
  const std::string minor(sdk_version.substr(0, sdk_version.rfind('.')));
  const std::string layout(detail::layout_text.data(), detail::layout_text.size());
  const std::string row = detail::concat("\n| ", minor, " | ", plugin_epoch, " | `", layout, "` |\n");
  const std::string table = manual().substr(manual().find("| prun | epoch | interface layout |"));
  EXPECT_TRUE(test::holds(table, row))
      << "plugins that were built with another " << minor << " would be refused. If CHANGELOG.md has a "
      << minor << ".0 with a date, raise the minor version (CMakeLists.txt, plugin.hpp, sdk_anchor.cpp, "
      << "CITATION.cff) and give it a row in docs/plugins.md; else correct the row:" << row;
  EXPECT_EQ(table.find("\n| " + minor + " |"), table.rfind("\n| " + minor + " |")) << "two rows";
}

TEST(Version, IsTheSameWhereverItStands) {
  const auto stands = [](const char* file, const std::string& text) {
    EXPECT_TRUE(test::holds(test::contents(fs::path(PRUN_SOURCE_DIR) / file), text)) << file << ": " << text;
  };
  const std::string version(sdk_version), minor = version.substr(0, version.rfind('.'));
  stands("CMakeLists.txt", "project(prun VERSION " + version + " ");
  stands("CITATION.cff", "\nversion: " + version + "\n");
  stands("CHANGELOG.md", "\n## [" + version + "] - ");
  stands("tools/packaging/spack_repo/prun/packages/prun/package.py", "version(\"" + version + "\")\n");
  stands(("tools/packaging/prun-" + version + "-GCC-13.3.0.eb").c_str(), "\nversion = '" + version + "'\n");
  for (const char* file : {"docs/plugins.md", "examples/plugins/lion/CMakeLists.txt"})
    stands(file, "find_package(prun " + minor + " CONFIG REQUIRED)");
}

// Each example is a project with a page of three lines, and the page of all lists it.
TEST(Examples, EachIsAProjectWithAPage) {
  const fs::path examples = fs::path(PRUN_SOURCE_DIR) / "examples" / "plugins";
  const std::string list = test::contents(examples / "README.md"),
                    build = test::contents(examples / "CMakeLists.txt");
  int found = 0;
  for (const auto& entry : fs::directory_iterator(examples)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string(),
                      page = test::contents(entry.path() / "README.md");
    EXPECT_TRUE(fs::exists(entry.path() / "CMakeLists.txt")) << name;
    EXPECT_EQ(std::count(page.begin(), page.end(), '\n'), 4) << name << ": a heading, a blank, two sentences";
    EXPECT_TRUE(test::holds(list, "(" + name + "/README.md)")) << name;
    EXPECT_TRUE(test::holds(build, name)) << name;
    ++found;
  }
  EXPECT_GE(found, 7);
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

// "model:build,write_config;strategy:apply;…" is what the interfaces' layout is known by.
TEST(Manual, ListsEveryHookOfEveryKind) {
  const std::string text = hooks();
  std::size_t rows = 0;
  for (const std::string_view kind : split(detail::interface_methods, ';')) {
    const std::size_t colon = kind.find(':');
    for (const std::string_view method : split(kind.substr(colon + 1), ',')) {
      EXPECT_TRUE(test::holds(text, detail::concat("| ", kind.substr(0, colon), " | `", method, "` | ")));
      ++rows;
    }
  }
  const std::size_t begin = text.find("## Hooks"), end = text.find("## Phases");
  EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                text.begin() + static_cast<std::ptrdiff_t>(end), '|')),
            4 * (rows + 2))
      << "a hook is listed that is none";
}

TEST(Manual, ListsEveryPhaseAndTrait) {
  const std::string text = hooks();
  for (const std::string_view phase : phases)
    EXPECT_TRUE(test::holds(text, detail::concat("\n| `", phase, "` | ")));
  for (const TraitRule& rule : trait_rules()) {
    const std::size_t begin =
        text.find(detail::concat("\n| ", rule.kind, " | `"), text.find("## Traits of a plugin"));
    ASSERT_NE(begin, std::string::npos) << rule.kind;
    EXPECT_TRUE(test::holds(text.substr(begin, text.find('\n', begin + 1) - begin),
                            detail::concat("`", rule.key, "`")));
  }
}

// What op_def() takes from an op's struct.
TEST(Manual, ListsEveryTraitOfAnOp) {
  const std::string header =
      test::contents(fs::path(PRUN_SOURCE_DIR) / "core" / "include" / "prun" / "op.hpp");
  const std::regex taken("requires \\{ Op::([a-z_]+); \\}");
  int found = 0;
  for (std::sregex_iterator at(header.begin(), header.end(), taken), end; at != end; ++at) {
    if ((*at)[1] == "attrs") continue;
    EXPECT_TRUE(test::holds(hooks(), "`" + (*at)[1].str() + "`"));
    ++found;
  }
  EXPECT_EQ(found, 13);
}

}  // namespace
}  // namespace prun
