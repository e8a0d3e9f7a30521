// Values at the edges of their ranges, alone and in products that no number holds: a plan is right, or it is
// refused by exit code 2 and a sentence. PRUN_SEED repeats a drawing, PRUN_LONG draws 1,000 recipes instead
// of 50.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <random>

#include "base/json.hpp"
#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/drawn_recipe.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

class Edges {
 public:
  explicit Edges(unsigned seed) : random_(seed) {}

  std::string recipe() {
    std::string text = "[run]\nname = \"edges\"\nsteps = 3\n" + maybe(4, "save_every", steps) +
                       maybe(6, "bucket_bytes", sizes) + maybe(6, "save_memory", sizes) +
                       "[data]\nplugin = \"tokens\"\npath = '" + tiny_recipe({}).text("data.path") + "'\n" +
                       model() + batch();
    text += "[optimizer]\nplugin = \"adamw\"\nlr = 1e-3\n" + maybe(6, "clip", reals);
    text += "[device]\nplugin = \"cpu\"\n" + maybe(4, "memory", sizes) + maybe(4, "host_gib", reals) +
            maybe(6, "threads", counts);
    return text + "[comm]\ndefault = \"ucx\"\n" + mesh();
  }

 private:
  static constexpr std::array counts = {
      "0", "1", "-1", "2147483647", "2147483648", "9223372036854775807", "-9223372036854775808"};
  static constexpr std::array steps = {"0", "1", "-1", "9223372036854775807"};
  static constexpr std::array sizes = {
      "'0B'", "'1B'", "'-1GiB'", "'0.0000001GiB'", "'8388607TiB'", "'8388608TiB'", "'9223372036854775807B'"};
  static constexpr std::array reals = {"0.0", "-0.0", "5e-324", "1e-9", "1e18", "1e308", "inf", "nan"};

  bool one_in(unsigned n) { return random_() % n == 0; }

  template <std::size_t N>
  std::string of(const std::array<const char*, N>& values) {
    return values[random_() % N];
  }

  template <std::size_t N>
  std::string maybe(unsigned n, const std::string& key, const std::array<const char*, N>& values) {
    return one_in(n) ? key + " = " + of(values) + "\n" : "";
  }

  // Small, the most that a range allows, half of it, and now and then what no range does.
  std::string extent(const std::string& key, std::int64_t small, std::int64_t most) {
    const std::string value = one_in(40)  ? of(counts)
                              : one_in(8) ? std::to_string(one_in(2) ? most : most / 2)
                                          : std::to_string(small);
    return key + " = " + value + "\n";
  }

  std::string model() {
    const bool llama = one_in(2);
    std::string text = llama ? "[model]\nplugin = \"llama\"\n" : "[model]\nplugin = \"gpt\"\n";
    text += extent("layers", 2, 1000) + extent("hidden", 64, 1048576) + extent("heads", 4, 65536) +
            extent("seq", 16, 16777216) + extent("vocab", 256, 16777216);
    return llama || one_in(2) ? text + extent("ffn", 128, 4194304) : text;
  }

  std::string batch() { return "[batch]\n" + extent("global", 8, 1000000000) + extent("micro", 1, 1000000); }

  std::string mesh() {
    if (!one_in(3)) return "";
    std::string text =
        "[mesh]\n" + extent("ranks", 2, 1048576) + "[[strategy]]\nplugin = \"data\"\naxis = \"ranks\"\n";
    return one_in(2) ? text + "[[strategy]]\nplugin = \"zero\"\n" + extent("stage", 1, 3) : text;
  }

  std::minstd_rand random_;
};

void expect_no_negative(const JsonValue& value) {
  if (value.is_object())
    for (const JsonMember& member : value.as_object().members()) expect_no_negative(member.value);
  if (value.is_array())
    for (const JsonValue& item : value.as_array()) expect_no_negative(item);
  const bool number = value.kind() == JsonKind::integer || value.kind() == JsonKind::unsigned_integer ||
                      value.kind() == JsonKind::real;
  if (number) {
    EXPECT_GE(value.as_double(), 0);
  }
}

TEST(PlanOfEdges, IsRightOrIsRefusedInWords) {
  const unsigned first = first_seed(), draws = std::getenv("PRUN_LONG") ? 1000 : 50;
  std::printf("seed %u (PRUN_SEED=%u repeats)\n", first, first);
  const std::string file = (temporary_folder() / "edges.toml").string();
  unsigned planned = 0;
  for (unsigned draw = 0; draw < draws; ++draw) {
    const std::string text = Edges(first + draw).recipe();
    std::ofstream(file) << text;
    const Result plan = prun({"plan", file, "--json"});
    const std::string where = "PRUN_SEED=" + std::to_string(first + draw) + "\n" + text + plan.out;
    EXPECT_TRUE(plan.code == 0 || plan.code == 2) << plan.code << " " << where;
    EXPECT_EQ(plan.out.find(".cpp:"), std::string::npos) << where;
    EXPECT_TRUE(plan.code == 0 || plan.out.find("prun: ") != std::string::npos) << where;
    if (plan.code != 0) continue;
    ++planned;
    const std::size_t begin = plan.out.find('{');
    ASSERT_NE(begin, std::string::npos) << where;
    const JsonValue json = parse_json(plan.out.substr(begin), "plan");
    SCOPED_TRACE(where);
    expect_no_negative(json);
    // A number, its gradient and two moments, and no more than any machine has.
    EXPECT_GE(json.at("memory_bytes").as_int64(), json.at("parameters").as_int64());
    EXPECT_LT(json.at("memory_bytes").as_int64(), std::int64_t{1} << 50);
  }
  std::printf("%u of %u were planned, all others refused\n", planned, draws);
}

std::string edge_file(const std::string& name, const std::vector<std::string>& sets) {
  const std::string file = (temporary_folder() / name).string();
  std::ofstream(file) << tiny_recipe(sets).resolved_toml();
  return file;
}

// 4 TiB by 512 KiB: the plan of its messages would be larger than the host's memory.
TEST(PlanOfEdges, AnExchangeOfMoreMessagesThanCanBePlannedIsRefused) {
  const Result plan =
      prun({"plan", edge_file("messages.toml",
                              {"model.hidden=1048576", "model.layers=1", "batch.global=8", "batch.micro=1",
                               "mesh.dp=2", "strategy.0.plugin=data", "run.bucket_bytes=1B"})});
  EXPECT_EQ(plan.code, 2);
  EXPECT_NE(plan.out.find("raise comm.ucx.chunk_kib"), std::string::npos) << plan.out;
  EXPECT_LT(plan.peak_bytes, std::int64_t{3} << 30);
}

// Each layer's exchange among a million ranks is the same one, so it is looked at once.
TEST(PlanOfEdges, AMillionRanksAndManyLayersArePlanned) {
  const Result plan =
      prun({"plan", edge_file("many.toml", {"model.layers=200", "batch.global=1048576", "batch.micro=1",
                                            "mesh.dp=1048576", "strategy.0.plugin=data"})});
  EXPECT_EQ(plan.code, 0) << plan.out;
}

// What no address reaches is no bug of the planner's: it was stopped by one of its checks.
TEST(PlanOfEdges, MoreThanThereAreAddressesForIsRefused) {
  const Result plan = prun(
      {"plan", edge_file("addresses.toml", {"model.hidden=524288", "model.heads=65536", "model.ffn=4194304",
                                            "model.seq=16777216", "batch.global=8", "batch.micro=2"})});
  EXPECT_EQ(plan.code, 2);
  EXPECT_NE(plan.out.find("cannot plan a rank of more than"), std::string::npos) << plan.out;
}

}  // namespace
}  // namespace prun::test
