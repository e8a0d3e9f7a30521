// The schema for editors, asked by Python's validator: all recipes pass, each kind of mistake is found.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "binary.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

// Prints, for each file, its name and the path of what is wrong first, or "good".
constexpr const char* validator = R"(
import json, sys
try: import tomllib
except ImportError: import tomli as tomllib
import jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft7Validator.check_schema(schema)
for name in sys.argv[2:]:
    errors = sorted(jsonschema.Draft7Validator(schema).iter_errors(tomllib.load(open(name, 'rb'))), key=lambda e: str(e.path))
    print(name, '.'.join(map(str, errors[0].absolute_path)) + ': ' + errors[0].message[:200] if errors else 'good')
)";

class JsonSchema : public testing::Test {
 protected:
  void SetUp() override {
    if (shell("python3 -c 'import jsonschema, sys; sys.exit(sys.version_info < (3, 11))'").code != 0)
      GTEST_SKIP() << "needs Python 3.11 with jsonschema (Debian: python3-jsonschema)";
    std::ofstream(folder_ / "validate.py") << validator;
    ASSERT_EQ(shell("$PRUN reference --json-schema > " + folder_ / "schema.json").code, 0);
  }

  std::string validate(const std::string& files) {
    return shell("python3 " + folder_ / "validate.py" + " " + folder_ / "schema.json" + " " + files).out;
  }

  // Of the quickstart's recipe with one text for another.
  std::string validate_changed(const std::string& from, const std::string& to) {
    std::ifstream file(fs::path(PRUN_SOURCE_DIR) / "configs/quickstart.toml");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::ofstream(folder_ / "changed.toml") << text.replace(at, from.size(), to);
    return validate(folder_ / "changed.toml");
  }

  TempFolder folder_;
};

TEST_F(JsonSchema, TakesEveryRecipeOfConfigs) {
  const std::string said = validate(PRUN_SOURCE_DIR "/configs/*.toml");
  std::istringstream lines(said);
  // A build for a machine without a GPU leaves out the device cuda: then its schema has no such device.
  const bool has_cuda = fs::exists(fs::path(PRUN_TEST_PLUGINS) / "libprun_device_cuda.so");
  const std::string no_cuda = " device.plugin: 'cuda' is not one of ";
  int files = 0;
  for (std::string line; std::getline(lines, line); ++files)
    EXPECT_TRUE(line.ends_with(" good") || (!has_cuda && line.find(no_cuda) != std::string::npos)) << line;
  EXPECT_GE(files, 9);
}

TEST_F(JsonSchema, FindsWhatIsWrong) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"steps = 60", "stepps = 150"},
      {"steps = 60", "steps = \"many\""},
      {"steps = 60", "steps = 0"},
      {"plugin = \"gpt\"", "plugin = \"gtp\""},
      {"layers = 4", "layerz = 4"},
      {"layers = 4", "layers = -4"},
      {"kind = \"cosine\"", "kind = \"sine\""},
      {"warmup = 10", "warm = 10"},
      {"[0.9, 0.95]", "[0.9, \"b\"]"},
      {"[mesh]\ndp = 2", "[mesh]\ndp = 0"},
      {"[batch]", "[bacth]"},
      {"[[strategy]]", "[strategy]"},
      {"global = 8\n", ""},
      {"axis = \"dp\"", "axes = \"dp\""},
  };
  for (const auto& [from, to] : mistakes) {
    const std::string said = validate_changed(from, to);
    EXPECT_TRUE(said.starts_with(folder_ / "changed.toml")) << said;
    EXPECT_EQ(said.find(" good\n"), std::string::npos) << to << "\n" << said;
  }
}

TEST_F(JsonSchema, LeavesOpenWhatOtherFilesSay) {
  for (const auto& [from, to] :
       {std::pair("[run]\nname = \"quickstart\"\nsteps = 60\n", "include = [\"base.toml\"]\n[run]\n"),
        {"plugin = \"gpt\"\nlayers = 4", "config = \"config.json\"\nlayers = 4"},
        {"[data]", "[comm]\ndp = \"ucx\"\n[device]\nthreads = 1\nmemory = \"2 GiB\"\n[data]"}}) {
    const std::string said = validate_changed(from, to);
    EXPECT_TRUE(said.ends_with(" good\n")) << to << "\n" << said;
  }
}

}  // namespace
}  // namespace prun::test
