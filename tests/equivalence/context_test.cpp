// Sequences shared out over ranks: equal to one rank, bit for bit in forward, beside every other strategy.
#include <gtest/gtest.h>

#include "inspect/verify.hpp"
#include "program/recompute.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::context_test {
namespace {

const std::vector<std::string> small = {"model.hidden=16", "model.heads=4",    "model.ffn=32",
                                        "model.seq=48",    "device.threads=1", "device.pin=false",
                                        "batch.micro=1",   "batch.global=4",   "run.poison=true"};
const std::vector<std::string> exact = {"precision.compute=fp64", "precision.state=fp64"};
const std::vector<std::string> apart = {"data.mask_documents=true", "data.end_of_text=7"};

const std::string by_heads = "ulysses";

// One of: zigzag, none, which keys and values come together for, and ulysses.
std::string context(int ranks, const std::string& way, const std::string& axes = "") {
  return "[mesh]\n" + axes + "cp = " + std::to_string(ranks) + "\n[[strategy]]\nplugin = 'context'\n" +
         (way == "ulysses" ? "method" : "balance") + " = '" + way + "'\n";
}

struct Case {
  int ranks;
  const char* model;
  const char* way;
  bool documents;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.model << " cp" << c.ranks << " " << c.way << (c.documents ? " documents" : "");
  }
};

std::vector<std::string> model_of(const std::string& model) {
  std::vector<std::string> sets = {"model.plugin=" + model};
  if (model == "llama") return with(sets, {"model.heads=8", "model.kv_heads=4"});
  return with(sets, {"model.dropout=0.2"});
}

class Context : public testing::TestWithParam<Case> {};

TEST_P(Context, EqualsOneRank) {
  const Case& c = GetParam();
  std::vector<std::string> sets = with(with(small, exact), model_of(c.model));
  if (c.documents) sets = with(sets, apart);
  // Of 12 groups eight ranks have four, and share out the two queries of each; gpt's groups are queries.
  if (c.way == by_heads) sets = with(sets, {"model.hidden=48", "model.heads=24", "model.kv_heads=12"});
  if (c.model == std::string("gpt")) std::erase(sets, "model.kv_heads=12");
  const LayoutVerdict verdict =
      verify_layout(tiny_recipe(sets, context(c.ranks, c.way)), plugins().places(), 5);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  EXPECT_LT(verdict.loss.value, 1e-14) << to_text(verdict);
  EXPECT_LT(verdict.parameter.value, 1e-11) << to_text(verdict);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {2, 3, 4, 8})
    for (const char* model : {"gpt", "llama"})
      for (const char* way : {"zigzag", "none", "ulysses"})
        for (const bool documents : {false, true}) all.push_back({ranks, model, way, documents});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, Context, testing::ValuesIn(cases()));

// Parts of sequences go to parts of heads within `near`, whose keys and values come together over `cp`.
TEST(Context, HeadsWithinAndKeysAcrossEqualOneRank) {
  const std::string near = "[[strategy]]\nplugin = 'context'\naxis = 'near'\nmethod = 'ulysses'\n";
  for (const char* model : {"gpt", "llama"})
    for (const char* balance : {"zigzag", "none"})
      for (const bool first : {false, true}) {
        std::string text = context(2, balance);
        const std::size_t at = text.find("[[strategy]]");
        text = text.substr(0, at) + "near = 2\n" + (first ? near + text.substr(at) : text.substr(at) + near);
        const std::vector<std::string> sets = with(with(with(small, exact), model_of(model)), apart);
        const LayoutVerdict verdict = verify_layout(tiny_recipe(sets, text), plugins().places(), 5);
        EXPECT_TRUE(verdict.equal()) << to_text(verdict);
        EXPECT_LT(verdict.loss.value, 1e-14) << to_text(verdict);
        EXPECT_LT(verdict.parameter.value, 1e-11) << to_text(verdict);
      }
}

// Keys and values that come out of a latent vector, of whose channels some turn, as any others.
TEST(Context, LatentAttentionEqualsOneRank) {
  const std::vector<std::string> latent = {
      "model.plugin=llama",   "model.heads=8",         "model.head_dim=6", "model.latent=6",
      "model.query_latent=8", "model.rope_head_dim=4", "model.value_dim=4"};
  for (const char* way : {"zigzag", "none", "ulysses"}) {
    const LayoutVerdict verdict =
        verify_layout(tiny_recipe(with(with(small, exact), latent), context(4, way)), plugins().places(), 5);
    EXPECT_TRUE(verdict.exact_arithmetic);
    EXPECT_TRUE(verdict.equal()) << way << "\n" << to_text(verdict);
  }
}

void expect_one_rank(const std::vector<std::string>& sets, const std::string& text) {
  const LayoutVerdict verdict = verify_layout(tiny_recipe(sets, text), plugins().places(), 5);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  EXPECT_LT(verdict.loss.value, 1e-14) << to_text(verdict);
  EXPECT_LT(verdict.parameter.value, 1e-11) << to_text(verdict);
}

struct Windowed {
  int ranks;
  const char *way, *window;
  bool documents;
  friend std::ostream& operator<<(std::ostream& out, const Windowed& c) {
    return out << "cp" << c.ranks << " " << c.way << " " << c.window << (c.documents ? " documents" : "");
  }
};

class ContextWindows : public testing::TestWithParam<Windowed> {};

TEST_P(ContextWindows, EqualOneRank) {
  const Windowed& c = GetParam();
  std::vector<std::string> sets =
      with(with(with(small, exact), model_of("llama")), {std::string("model.window=") + c.window});
  if (c.documents) sets = with(sets, apart);
  expect_one_rank(sets, context(c.ranks, c.way));
}

// Windows of one position, shorter than a rank's part or chunk, as long, longer, and longer than sequences.
std::vector<Windowed> windows() {
  std::vector<Windowed> all;
  for (const int ranks : {2, 3, 4, 8})
    for (const char* way : {"zigzag", "none"})
      for (const char* window : {"1", "3", "6", "13", "20", "40", "60"})
        for (const bool documents : {false, true}) all.push_back({ranks, way, window, documents});
  all.push_back({2, "ulysses", "3", true});
  all.push_back({4, "ulysses", "20", true});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, ContextWindows, testing::ValuesIn(windows()));

const std::vector<std::string> alternating = {"model.window=5", "model.full_every=2"};

// Layers with windows in turn with full ones; heads go by another axis, or the queries of a group do.
TEST(Context, WindowsInTurnEqualOneRank) {
  const std::vector<std::string> sets = with(with(with(small, exact), model_of("llama")), alternating);
  const std::string near = "[[strategy]]\nplugin = 'context'\naxis = 'near'\nmethod = 'ulysses'\n",
                    tensor = "[[strategy]]\nplugin = 'tensor'\n";
  for (const char* way : {"zigzag", "none", "ulysses"}) expect_one_rank(sets, context(2, way));
  for (const char* way : {"zigzag", "none"}) {
    std::string text = context(2, way);
    expect_one_rank(with(sets, {"model.kv_heads=2"}), context(2, way, "tp = 4\n") + tensor);
    text.insert(text.find("[[strategy]]"), "near = 2\n");
    expect_one_rank(sets, text + near);
  }
}

// Enqueued on streams, or through pinned memory one after the other, the same is sent and received.
TEST(Context, WindowsEqualOneRankOnADeviceOfItsOwnMemory) {
  std::vector<std::string> sets = with(with(small, exact), model_of("llama"));
  for (const char* of_cores : {"device.threads=1", "device.pin=false", "run.poison=true"})
    std::erase(sets, of_cores);
  sets = with(sets, {"device.plugin=cpu-async", "batch.micro=2", "model.window=14"});
  for (const char* comm : {"comm.default=meet-async", "comm.default=ucx"})
    for (const char* way : {"zigzag", "none"}) expect_one_rank(with(sets, {comm}), context(4, way));
}

// A layer with a window exchanges the ends of chunks, another one all keys and values.
TEST(Context, AWindowExchangesWhatItReachesAlone) {
  const auto moved = [](const std::vector<std::string>& more, const char* way, int ranks = 2) {
    const Assembly assembly(tiny_recipe(with(with(with(small, model_of("llama")), {"model.layers=1"}), more),
                                        context(ranks, way)),
                            plugins());
    std::map<std::string, int> ops;
    for (Id segment = 0; segment < assembly.program().segment_count(); ++segment)
      for (const FunctionKind kind : {FunctionKind::forward, FunctionKind::backward})
        for (const Id id : assembly.program().segment(segment).ops(kind))
          ++ops[std::string(assembly.program().op(id).kind())];
    return ops;
  };
  for (const char* way : {"zigzag", "none"}) {
    EXPECT_EQ(moved({}, way)["join_halo"], 0);
    EXPECT_EQ(moved({"model.window=24"}, way)["join_halo"], way == std::string("none") ? 4 : 0);
    EXPECT_EQ(moved({"model.window=25"}, way)["join_halo"], 0) << "as long as a rank's part";
    EXPECT_EQ(moved({"model.window=5"}, way)["join_halo"], 4) << "keys and values, forward and backward";
    EXPECT_EQ(moved({"model.window=5"}, way)["add_tails"], 2);
    EXPECT_EQ(moved({"model.window=5"}, way)["shift"], 6);
    EXPECT_EQ(moved({"model.window=5"}, way)["as_context"], 0);
    // Each of 8 ranks has 6 of 48 positions, or 3 and 3.
    EXPECT_EQ(moved({"model.window=14"}, way, 8)["shift"], way == std::string("none") ? 18 : 30);
    EXPECT_EQ(moved({"model.window=22"}, way, 8)["shift"], way == std::string("none") ? 24 : 0);
  }
}

struct Beside {
  const char* name;
  std::string axes, strategies;
  std::vector<std::string> sets;
  bool of_gather = false;
  friend std::ostream& operator<<(std::ostream& out, const Beside& b) { return out << b.name; }
};

class ContextBeside : public testing::TestWithParam<Beside> {
 protected:
  void expect_equal(const char* way) const {
    for (const char* model : {"gpt", "llama"}) expect_equal(way, model, {});
  }
  void expect_equal(const char* way, const char* model, const std::vector<std::string>& more) const;
};

TEST_P(ContextBeside, EqualsOneRank) { expect_equal("zigzag"); }
TEST_P(ContextBeside, EqualsOneRankByHeads) {
  if (GetParam().of_gather) GTEST_SKIP() << "an option of the other method";
  expect_equal("ulysses");
}

TEST_P(ContextBeside, EqualsOneRankWithWindows) {
  for (const char* way : {"zigzag", "none"}) expect_equal(way, "llama", alternating);
}

void ContextBeside::expect_equal(const char* way, const char* model,
                                 const std::vector<std::string>& more) const {
  const Beside& beside = GetParam();
  std::vector<std::string> sets = with(with(with(small, exact), model_of(model)), apart);
  sets = with(with(sets, {"batch.global=8"}), more);
  sets = with(sets, beside.sets);
  std::string text = context(2, way, beside.axes);
  text += beside.strategies;
  // tp comes in front of cp here, and what it gathers of sequences would be gathered over cp first.
  if (const std::size_t at = text.find("sequence = true\n"); at != std::string::npos && way == by_heads)
    text.erase(at, std::string("sequence = true\n").size());
  if (beside.strategies.find("'tensor'") != std::string::npos)  // heads go by tp first, sequences by cp
    text.insert(text.find(way == by_heads ? "cp = " : "[[strategy]]"), "tp = 2\n");
  SCOPED_TRACE(std::string(model) + ", " + way);
  expect_one_rank(sets, text);
}

std::vector<Beside> neighbours() {
  const std::string data = "[[strategy]]\nplugin = 'data'\n", tensor = "[[strategy]]\nplugin = 'tensor'\n",
                    sequence = tensor + "sequence = true\n", dp = "dp = 2\n", pp = "pp = 2\n",
                    pipeline = "[[strategy]]\nplugin = 'pipeline'\nschedule = ";
  const auto zero = [](int stage) {
    return "[[strategy]]\nplugin = 'zero'\naxis = ['dp', 'cp']\nstage = " + std::to_string(stage) + "\n";
  };
  std::vector<Beside> all = {
      {"data", dp, data, {}},
      {"tensor", "", tensor, {}},
      {"tensor_sequence", "", sequence, {}},
      {"recompute", "", "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n", {}},
      {"recompute_attention",
       "",
       "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['linear', 'attention']\n",
       {}},
      {"offload",
       "",
       "[[strategy]]\nplugin = 'recompute'\n[[strategy]]\nplugin = 'offload'\nactivations = "
       "'host'\noptimizer = 'host'\n",
       {}},
      {"untied", "", "", {"model.tied=false"}},
      {"pieces", "", "", {"strategy.0.pieces=2"}, true},
      {"pieces_tensor", "", sequence, {"strategy.0.pieces=2", "model.heads=8"}, true},
      {"everything", dp, data + sequence + zero(1), {"batch.global=4"}},
      {"gpipe", pp, pipeline + "'gpipe'\n", {"model.layers=4"}},
      {"1f1b", pp, pipeline + "'1f1b'\n", {"model.layers=4"}},
      {"interleaved", pp, pipeline + "'interleaved'\nchunks = 2\n", {"model.layers=4"}},
      {"zb_h1", pp, pipeline + "'zb-h1'\n", {"model.layers=4"}},
      {"zb_v", pp, pipeline + "'zb-v'\nchunks = 2\n", {"model.layers=4"}}};
  constexpr const char* names[] = {"zero1", "zero2", "zero3"};
  for (int stage = 1; stage <= 3; ++stage) all.push_back({names[stage - 1], dp, data + zero(stage), {}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, ContextBeside, testing::ValuesIn(neighbours()),
                         [](const auto& beside) { return std::string(beside.param.name); });

void expect_losses_of_one_rank(const std::vector<std::string>& sets) {
  const double one = run_ranks(tiny_recipe(sets), 1)[0][0];
  for (const char* balance : {"zigzag", "none"})
    EXPECT_NEAR(run_ranks(tiny_recipe(sets, context(4, balance)), 1)[0][0], one, 1e-13 * one)
        << testing::PrintToString(sets) << " " << balance;
}

// Everything that a rank does for itself in forward has the bits that it has on one rank, so the loss has,
// summed in double.
TEST(Context, LossesAreThoseOfOneRankInAnyPrecision) {
  for (const char* compute : {"fp32", "bf16"})
    for (const char* model : {"gpt", "llama"}) {
      const std::vector<std::string> sets =
          with(with(with(small, model_of(model)), apart),
               {std::string("precision.compute=") + compute, "model.seq=320"});
      expect_losses_of_one_rank(sets);
      if (model == std::string("llama")) expect_losses_of_one_rank(with(sets, {"model.window=30"}));
    }
}

// The loss of a sample of two documents of 24 tokens each.
double loss_of(int first, int second, const std::string& documents, const std::string& way) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240520, header[1] = 1, header[2] = 49;
  std::vector<std::uint16_t> tokens;
  for (const int seed : {first, second}) {
    for (int i = 0; i < 23; ++i)
      tokens.push_back(static_cast<std::uint16_t>(8 + (seed * 31 + i * i * seed + i) % 50));
    tokens.push_back(7);
  }
  tokens.push_back(9);
  const TempFolder folder;
  const std::string file = folder.write(
      "two.bin", std::string(reinterpret_cast<const char*>(header.data()), 1024) +
                     std::string(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()));
  const std::vector<std::string> sets =
      with(with(with(small, exact), apart),
           {"data.mask_documents=" + documents, "data.path=" + file, "batch.global=1", "model.plugin=llama"});
  return run_ranks(tiny_recipe(sets, context(2, way)), 1)[0][0];
}

// Another first document changes the loss of all by what it costs itself, whatever the second one is.
TEST(Context, ADocumentDoesNotMatterToTheNextAcrossRanks) {
  for (const char* way : {"zigzag", "none", "ulysses"}) {
    const auto influence = [&](const char* documents) {
      const auto difference = [&](int first) {
        return loss_of(first, 3, documents, way) - loss_of(first, 4, documents, way);
      };
      return std::abs(difference(1) - difference(2));
    };
    EXPECT_LT(influence("true"), 1e-14) << way;
    EXPECT_GT(influence("false"), 1e-8) << way;
  }
}

// Queries are not exchanged, and a rank computes its share of attention.
TEST(Context, OnlyKeysAndValuesTravelAndAttentionIsSharedOut) {
  std::vector<std::string> sets = with(with(small, model_of("llama")), {"model.seq=64"});
  const auto flops = [&](const std::string& text) {
    const Assembly assembly(tiny_recipe(sets, text), plugins());
    const Program& program = assembly.program();
    double all = 0;
    for (Id segment = 0; segment < program.segment_count(); ++segment)
      for (const FunctionKind kind : {FunctionKind::forward, FunctionKind::backward})
        for (const Id id : program.segment(segment).ops(kind))
          if (program.op(id).kind().starts_with("attention"))
            all += program.op(id).cost(program.local_shape(program.op(id))).flops;
    return all;
  };
  const std::string tensor = "[[strategy]]\nplugin = 'tensor'\n";
  for (const int ranks : {2, 4}) {
    EXPECT_DOUBLE_EQ(flops(context(ranks, "zigzag")) * ranks, flops(""));
    EXPECT_DOUBLE_EQ(flops(context(ranks, "ulysses")) * ranks, flops(""));
    // Groups of heads are shared out over both, and the queries of each beyond that.
    EXPECT_DOUBLE_EQ(flops(context(ranks, "ulysses", "tp = 2\n") + tensor) * ranks * 2, flops(""));
  }
  EXPECT_DOUBLE_EQ(flops(context(8, "ulysses")) * 8, flops(""));
  for (const char* window : {"model.window=7", "model.window=40"}) {
    sets = with(sets, {window});
    for (const char* way : {"zigzag", "none"})
      EXPECT_DOUBLE_EQ(flops(context(4, way)) * 4, flops("")) << window << way;
  }
}

}  // namespace
}  // namespace prun::test::context_test
