// Plans recipes/*.toml for each purpose, and trains some of them: both are as on record in *.golden. A change
// that moves code alone leaves all of this as it is; one that plans otherwise on purpose shows the difference
// (tools/maintainer/same-programs) and rewrites the record.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/machine.hpp"
#include "base/sha256.hpp"
#include "nets/planned_text.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::nets_test {
namespace {

namespace fs = std::filesystem;

const fs::path folder = fs::path(PRUN_SOURCE_DIR) / "tests" / "nets";

// Holds lines "WHAT: DIGEST" of a file.
class Record {
 public:
  explicit Record(const char* name) : path_(folder / name) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);)
      if (const std::size_t colon = line.find(": "); colon != std::string::npos)
        digests_[line.substr(0, colon)] = line.substr(colon + 2);
  }

  bool has(const std::string& what) const { return digests_.count(what) != 0; }

  // Compares with what is on record. With PRUN_BLESS, writes it there instead; with PRUN_RECORD, writes the
  // text to that folder as well.
  void compare(const std::string& what, const std::string& text) {
    Sha256 hash;
    hash.update(text);
    const std::string digest = hash.hex().substr(0, 16);
    if (const char* to = std::getenv("PRUN_RECORD")) std::ofstream(fs::path(to) / (what + ".txt")) << text;
    if (std::getenv("PRUN_BLESS")) {
      digests_[what] = digest;
      std::ofstream file(path_);
      for (const auto& [name, value] : digests_) file << name << ": " << value << '\n';
    } else {
      EXPECT_EQ(digest, digests_[what]) << what << " is not as on record in " << path_
                                        << "; tools/maintainer/same-programs shows the difference to a "
                                           "commit, and records it if it is meant";
    }
  }

 private:
  fs::path path_;
  std::map<std::string, std::string> digests_;
};

Recipe recipe_of(const fs::path& path) {
  const std::string tokens = tiny_recipe().text("data.path");
  fs::current_path(fs::path(tokens).parent_path());
  const std::vector<std::string> sets = {"run.out=run", "run.fresh=true"};
  return Recipe::load(path, sets, plugins().catalog());
}

constexpr const char* name_of(Purpose purpose) {
  return purpose == Purpose::training     ? "training"
         : purpose == Purpose::evaluation ? "evaluation"
                                          : "generation";
}

std::string bits_of(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += detail::concat(std::bit_cast<std::uint64_t>(number), '\n');
  return text;
}

// Kernels, and with them workspaces and bits, depend on the instruction set: each has its own record.
bool is_on_record(const Record& record, const std::string& what) {
  return record.has(what) || std::getenv("PRUN_BLESS") || std::getenv("PRUN_RECORD");
}

class Planned : public testing::Test {
 public:
  explicit Planned(fs::path path) : path_(std::move(path)) {}
  void TestBody() override {
    const Recipe recipe = recipe_of(path_);
    Record record("programs.golden");
    for (const Purpose purpose : purposes_of(recipe)) {
      const std::string what =
          detail::concat(path_.stem().string(), ' ', name_of(purpose), ' ', this_machine().isa);
      if (!is_on_record(record, what)) GTEST_SKIP() << "nothing is on record for " << what;
      record.compare(what, planned_text(Assembly(recipe, plugins(), 0, purpose)));
    }
  }

 private:
  fs::path path_;
};

// Trains for a few steps: losses and parameters of all ranks, to the bit.
class Trained : public testing::Test {
 public:
  explicit Trained(fs::path path) : path_(std::move(path)) {}
  void TestBody() override {
    Record record("losses.golden");
    const std::string what = detail::concat(path_.stem().string(), ' ', this_machine().isa);
    if (!is_on_record(record, what)) GTEST_SKIP() << "nothing is on record for " << what;
    std::string bits;
    for (const std::vector<double>& of_rank : run_ranks(recipe_of(path_), 5)) bits += bits_of(of_rank) + '\n';
    record.compare(what, bits);
  }

 private:
  fs::path path_;
};

// Every fourth recipe is trained as well.
const bool registered = [] {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& file : fs::directory_iterator(folder / "recipes"))
    if (file.path().extension() == ".toml") paths.push_back(file.path());
  std::sort(paths.begin(), paths.end());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const fs::path& path = paths[i];
    const auto add = [&](const char* suite, auto make) {
      testing::RegisterTest(suite, path.stem().c_str(), nullptr, nullptr, path.c_str(), 1, make);
    };
    add("Planned", [path]() -> testing::Test* { return new Planned(path); });
    if (i % 4 == 0) add("Trained", [path]() -> testing::Test* { return new Trained(path); });
  }
  return true;
}();

TEST(Nets, AreFound) { EXPECT_TRUE(registered && testing::UnitTest::GetInstance()->total_test_count() > 80); }

}  // namespace
}  // namespace prun::test::nets_test
