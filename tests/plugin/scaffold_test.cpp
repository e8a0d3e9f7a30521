// `prun plugins new`: complete projects that compile, and no file ever overwritten.
#include "plugin_check/scaffold.hpp"

#include "plugin_fixtures.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

using test::error_of;
using test::holds;

class ScaffoldKind : public testing::TestWithParam<const char*> {};

TEST_P(ScaffoldKind, IsACompleteProject) {
  const test::TempFolder folder;
  const auto paths = write_scaffold(GetParam(), "my-own_2", folder.path() / "a" / "b");
  ASSERT_EQ(paths.size(), 3u);
  EXPECT_EQ(paths[1], folder.path() / "a" / "b" / "my-own_2.cpp");
  const std::string asked = GetParam(), kind = asked == "tier" ? "device" : asked;
  const std::string cmake = test::contents(paths[0]), source = test::contents(paths[1]);
  const std::string readme = test::contents(paths[2]);
  const std::string minor(sdk_version.substr(0, sdk_version.rfind('.')));
  EXPECT_TRUE(holds(cmake, "find_package(prun " + minor + " CONFIG REQUIRED)"));
  EXPECT_TRUE(holds(cmake, "prun_add_plugin(my-own_2 KIND " + kind + " SOURCES my-own_2.cpp)"));
  EXPECT_TRUE(holds(source, "PRUN_PLUGIN(" + kind + ", MyOwn2"));
  EXPECT_TRUE(holds(readme, "libprun_" + kind + "_my-own_2.so"));
  for (const std::string& text : {cmake, source, readme})
    EXPECT_EQ(text.find('@'), std::string::npos) << "a placeholder is left in: " << text;
}

TEST_P(ScaffoldKind, Compiles) {
#if defined(PRUN_CXX_COMPILER) && defined(PRUN_SDK_INCLUDE)
  const test::TempFolder folder;
  const auto paths = write_scaffold(GetParam(), "my-own_2", folder.path());
  const std::string command = std::string(PRUN_CXX_COMPILER) +
                              " -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I" +
                              PRUN_SDK_INCLUDE + " " + paths[1].string();
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
#else
  GTEST_SKIP() << "built without PRUN_CXX_COMPILER and PRUN_SDK_INCLUDE";
#endif
}

INSTANTIATE_TEST_SUITE_P(Kinds, ScaffoldKind,
                         testing::Values("model", "strategy", "optimizer", "data", "observer", "op",
                                         "schedule", "device", "tier", "comm"));

TEST(Scaffold, NamesAClassThatBeginsWithALetter) {
  const test::TempFolder folder;
  const auto paths = write_scaffold("data", "3d", folder.path());
  EXPECT_TRUE(holds(test::contents(paths[1]), "class Plugin3dData final"));
}

TEST(Scaffold, NeverOverwrites) {
  const test::TempFolder folder;
  test::write_file(folder.path() / "README.md", "mine");
  EXPECT_TRUE(
      holds(error_of([&] { write_scaffold("model", "x", folder.path()); }), "README.md' exists already"));
  EXPECT_EQ(test::contents(folder.path() / "README.md"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "x.cpp"));
}

TEST(Scaffold, RefusesWhatItCannotStart) {
  const test::TempFolder folder;
  const auto error = [&](const char* kind, const char* name) {
    return error_of([&] { write_scaffold(kind, name, folder.path() / "new"); });
  };
  EXPECT_TRUE(holds(error("modle", "x"), "there is no plugin kind 'modle'"));
  EXPECT_TRUE(holds(error("model", "X y"), "'X y' cannot be a plugin's name"));
  EXPECT_TRUE(holds(error("model", ""), "cannot be a plugin's name"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
}

}  // namespace
}  // namespace prun
