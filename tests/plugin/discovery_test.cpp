// The order of search, what is listed, and how a plugin that cannot be used is explained.
#include "plugin/discovery.hpp"

#include "plugin_fixtures.hpp"

namespace prun {
namespace {

using test::copy_fixture;
using test::error_of;
using test::holds;

// Sets a variable for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_)
      ::setenv(name_, old_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

class Discovery : public testing::Test {
 protected:
  Discovery() {
    std::filesystem::create_directories(first_);
    std::filesystem::create_directories(second_);
  }

  test::TempFolder folder_;
  std::filesystem::path first_ = folder_.path() / "first", second_ = folder_.path() / "second";
  std::vector<SearchPlace> places_ = {{first_, "--plugin-path"}, {second_, "PRUN_PLUGIN_PATH"}};
};

std::vector<std::string> folders_of(const std::vector<SearchPlace>& places) {
  std::vector<std::string> folders;
  for (const SearchPlace& place : places) folders.push_back(place.folder.string());
  return folders;
}

TEST(SearchPlaces, ComeInOrder) {
  const Variable path("PRUN_PLUGIN_PATH", "/e1:relative::/e2:."), data("XDG_DATA_HOME", "/data");
  const SearchRequest request{{"/c1", "/r2"}, {"mine", "/r2", "/r3"}, "/recipes", "/usr/bin"};
  const std::vector<std::string> expected = {"/c1",
                                             "/r2",
                                             "/e1",
                                             "/e2",
                                             "/recipes/mine",
                                             "/r3",
                                             "/data/prun/plugins/10",
                                             "/usr/lib/prun/plugins/10"};
  EXPECT_EQ(folders_of(search_places(request)), expected);
}

TEST(SearchPlaces, FallBackToTheHomeFolder) {
  const Variable path("PRUN_PLUGIN_PATH", ""), data("XDG_DATA_HOME", "not/absolute"),
      home("HOME", "/home/me");
  const std::vector<std::string> expected = {"/home/me/.local/share/prun/plugins/10",
                                             "/opt/p/lib/prun/plugins/10"};
  EXPECT_EQ(folders_of(search_places({{}, {}, "", "/opt/p/bin"})), expected);
}

TEST(SearchPlaces, NeverHoldTheCurrentFolderUnasked) {
  const Variable path("PRUN_PLUGIN_PATH", ".:./x:"), data("XDG_DATA_HOME", "."), home("HOME", "");
  EXPECT_EQ(folders_of(search_places({{}, {}, "", "/opt/p/bin"})),
            std::vector<std::string>{"/opt/p/lib/prun/plugins/10"});
}

TEST_F(Discovery, ListsEverythingWithItsState) {
  copy_fixture("libprun_model_good.so", first_);
  copy_fixture("libprun_model_good.so", second_);
  copy_fixture("libprun_model_wrong_epoch.so", first_);
  copy_fixture("libprun_data_picky.so", second_);
  copy_fixture("libprun_model_good.so", second_ / "libprun_model_renamed.so");
  test::write_file(first_ / "libprun_nonsense.so", "x");
  test::write_file(first_ / "README", "x");
  const std::vector<PluginCandidate> list = list_plugins(places_);
  ASSERT_EQ(list.size(), 5u);
  EXPECT_EQ(list[0].path, second_ / "libprun_data_picky.so");
  EXPECT_EQ(state_of(list[0]), "usable");
  EXPECT_EQ(list[0].origin, "PRUN_PLUGIN_PATH");
  EXPECT_EQ(list[1].path, first_ / "libprun_model_good.so");
  EXPECT_TRUE(list[1].usable());
  EXPECT_EQ(state_of(list[2]), "shadowed by " + list[1].path.string());
  EXPECT_FALSE(list[2].usable());
  EXPECT_TRUE(holds(state_of(list[3]),
                    "refused: it holds the model plugin 'good', so its file must be called "
                    "libprun_model_good.so"));
  EXPECT_TRUE(holds(state_of(list[4]), "refused: it was built for epoch 1"));
  ASSERT_TRUE(list[4].note.has_value());
  EXPECT_EQ(list[4].note->name, "wrong_epoch");
  EXPECT_EQ(plugin_names(places_, "model"), (std::vector<std::string>{"good", "renamed", "wrong_epoch"}));
}

TEST_F(Discovery, FindsTheFirst) {
  copy_fixture("libprun_model_good.so", second_);
  EXPECT_EQ(find_plugin(places_, "model", "good").path, second_ / "libprun_model_good.so");
  copy_fixture("libprun_model_good.so", first_);
  EXPECT_EQ(find_plugin(places_, "model", "good").path, first_ / "libprun_model_good.so");
}

TEST_F(Discovery, NeverReplacesARefusedPluginByALaterOne) {
  test::write_file(first_ / "libprun_model_good.so", "not a library");
  copy_fixture("libprun_model_good.so", second_);
  const std::string error = error_of([&] { find_plugin(places_, "model", "good"); });
  EXPECT_TRUE(holds(error, "the model plugin 'good' cannot be used"));
  EXPECT_TRUE(holds(error, first_.string() + "/libprun_model_good.so: refused: "));
  EXPECT_TRUE(holds(error, "is not an ELF file"));
  EXPECT_TRUE(holds(error, second_.string() + "/libprun_model_good.so: usable, but "));
}

TEST_F(Discovery, ExplainsAMissingPlugin) {
  copy_fixture("libprun_model_good.so", first_);
  copy_fixture("libprun_data_picky.so", first_);
  places_.push_back({folder_.path() / "none", "the user's plugins"});
  const std::string near = error_of([&] { find_plugin(places_, "model", "godo"); });
  EXPECT_TRUE(holds(near, "there is no model plugin 'godo'; did you mean 'good'?"));
  EXPECT_TRUE(holds(near, "looked in " + first_.string() + " (--plugin-path)"));
  EXPECT_TRUE(holds(near, "looked in " + second_.string() + " (PRUN_PLUGIN_PATH)"));
  EXPECT_TRUE(holds(near, "none (the user's plugins, which does not exist)"));
  const std::string other = error_of([&] { find_plugin(places_, "model", "picky"); });
  EXPECT_TRUE(holds(other, "the plugin of that name is of kind 'data'"));
}

TEST_F(Discovery, RefusesWordsThatCannotNameAPlugin) {
  EXPECT_TRUE(holds(error_of([&] { find_plugin(places_, "mode", "x"); }), "there is no plugin kind 'mode'"));
  EXPECT_TRUE(holds(error_of([&] { find_plugin(places_, "model", "../x"); }), "'../x' cannot be the name"));
  EXPECT_TRUE(holds(error_of([&] { find_plugin(places_, "model", ""); }), "cannot be the name"));
}

TEST_F(Discovery, RefusesAnUntrustedFile) {
  ::chmod(copy_fixture("libprun_model_good.so", first_).c_str(), 0777);
  EXPECT_TRUE(holds(error_of([&] { find_plugin(places_, "model", "good"); }), "can be written by anybody"));
}

TEST_F(Discovery, ExaminesAFileByItsPath) {
  const PluginCandidate good = examine_plugin(copy_fixture("libprun_model_good.so", first_), "argument");
  EXPECT_TRUE(good.usable());
  EXPECT_EQ(good.name, "good");
  const PluginCandidate odd =
      examine_plugin(copy_fixture("libprun_model_good.so", first_ / "odd.so"), "argument");
  EXPECT_TRUE(holds(state_of(odd), "its file must be called libprun_model_good.so"));
  EXPECT_TRUE(odd.note.has_value());
  EXPECT_TRUE(holds(state_of(examine_plugin(first_ / "none.so", "argument")), "No such file"));
}

}  // namespace
}  // namespace prun
