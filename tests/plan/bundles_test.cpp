// What travels together, and where the calls around it stand.
#include "plan/order/bundles.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/plan.hpp"
#include "plan/proof/check_plan.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::bundles_test {
namespace {

class Layout : public Assembly {
 public:
  explicit Layout(const std::string& bundle, int stage = 0, std::vector<std::string> sets = {})
      : Assembly(recipe(bundle, stage, std::move(sets)), plugins()) {}

  // "a; b" of all calls of a kind, or of those on one queue.
  std::string calls(const std::string& kind, const std::string& queue = "") const {
    std::string list;
    for (const Call& call : plan().calls) {
      const std::string text = call_text(program(), plan(), call);
      const bool here = queue.empty() || plan().queues[static_cast<std::size_t>(call.queue)].name == queue;
      if (here && text.starts_with(kind + " "))
        list += (list.empty() ? "" : "; ") + text.substr(kind.size() + 1);
    }
    return list;
  }

  // Where in the order a call first stands.
  std::size_t place(const std::string& text, std::size_t after = 0) const {
    const std::vector<Call>& calls = plan().calls;
    while (after < calls.size() && call_text(program(), plan(), calls[after]) != text) ++after;
    return after;
  }

  // Of the exchange of a block's parameters.
  static std::int64_t block_bytes() {
    const Layout alone("0B", 3);
    const Plan& plan = alone.plan();
    const PlannedFunction& gather =
        plan.functions[static_cast<std::size_t>(plan.find(FunctionKind::gather, 2))];
    std::int64_t bytes = 0;
    for (const PlannedStep& step : gather.steps) bytes += step.exchange->out.bytes;
    return bytes;
  }
  static std::string two_blocks() { return std::to_string(2 * block_bytes()) + "B"; }

  std::int64_t bytes(Region region) const {
    return plan().layout.memory.bytes[static_cast<std::size_t>(region)];
  }

 private:
  static Recipe recipe(const std::string& bundle, int stage, std::vector<std::string> sets) {
    sets.insert(sets.begin(), {"batch.global=8", "model.layers=4"});
    if (!bundle.empty()) sets.push_back("run.bucket_bytes=" + bundle);
    const std::string zero = "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
    return tiny_recipe(sets, data_parallel(2) + (stage > 0 ? zero : ""));
  }
};

TEST(Bundles, GatherUpdatedParametersUpToTheirBytes) {
  EXPECT_EQ(Layout("0B", 1).calls("update", "dp.gather"),
            "embedding; block.0; block.1; block.2; block.3; head");
  EXPECT_EQ(Layout(Layout::two_blocks(), 1).calls("update", "dp.gather"),
            "embedding and 1 more; block.1 and 1 more; block.3 and 1 more");
  EXPECT_EQ(Layout("1GiB", 1).calls("update", "dp.gather"), "embedding and 5 more");
}

TEST(Bundles, SumGradientsUpToTheirBytes) {
  EXPECT_EQ(Layout("0B").calls("reduce"), "head; block.3; block.2; block.1; block.0; embedding");
  EXPECT_EQ(Layout(Layout::two_blocks()).calls("reduce"), "head and 2 more; block.1 and 1 more; embedding");
  EXPECT_EQ(Layout("1GiB").calls("reduce"), "head and 5 more");
}

TEST(Bundles, AreUsuallyNoMoreThanAQuarterOfAll) {
  const Layout usual("", 1, {"model.layers=12"});
  const std::string calls = usual.calls("update", "dp.gather");
  EXPECT_NE(calls.find(" more"), std::string::npos) << calls;
  EXPECT_GE(std::count(calls.begin(), calls.end(), ';'), 3) << calls;
}

// Sums of one microbatch do not wait for those of the next.
TEST(Bundles, EndWithTheirPass) {
  EXPECT_EQ(Layout("1GiB", 2, {"batch.micro=2"}).calls("reduce", "dp.reduce"),
            "head and 5 more; head and 5 more");
}

TEST(Bundles, GatherAheadWithinTwiceTheirBytes) {
  const Layout alone("0B", 3, {"model.layers=8"}), pairs(Layout::two_blocks(), 3, {"model.layers=8"});
  // Blocks 5 and 6 are still there on the way back.
  EXPECT_EQ(
      pairs.calls("gather"),
      "embedding and 1 more; block.1 and 1 more; block.3 and 1 more; block.5 and 1 more; block.7 and 2 more; "
      "block.4 and 1 more; block.2 and 1 more; block.0");
  const std::int64_t table_and_head = 12 * 1024;
  EXPECT_LE(alone.bytes(Region::gathered), 2 * Layout::block_bytes() + table_and_head);
  EXPECT_LE(pairs.bytes(Region::gathered), 4 * Layout::block_bytes() + table_and_head);
}

// What fits is gathered once a step.
TEST(Bundles, KeepWhatFits) { EXPECT_EQ(Layout("1GiB", 3).calls("gather"), "embedding and 5 more"); }

TEST(Order, MeasuresFirstWhatIsSummedFirst) {
  for (const int stage : {0, 1, 2})
    EXPECT_EQ(Layout("0B", stage).calls("norm"), "head; block.3; block.2; block.1; block.0; embedding");
  // Behind the last sum stands no more than what needs it.
  const Layout parts("0B", 2);
  const std::size_t last_sum = parts.place("reduce embedding"),
                    added_up = parts.place("reduce embedding", last_sum + 1);
  EXPECT_LT(last_sum, parts.place("norm head"));
  EXPECT_LT(parts.place("norm block.0"), added_up);
  EXPECT_LT(added_up, parts.place("norm embedding"));
}

// The count of targets is summed while the first layers run.
TEST(Order, PutsOffWhatNoPassNeedsYet) {
  const Layout layout("0B");
  const std::size_t first = layout.place("begin step"), exchange = layout.place("begin step", first + 1),
                    rest = layout.place("begin step", exchange + 1);
  EXPECT_LT(exchange, layout.place("forward embedding mb 0"));
  EXPECT_LT(layout.place("forward block.3 mb 0"), rest);
  EXPECT_LT(rest, layout.place("forward head mb 0"));
}

TEST(Order, ReportsWithOneExchange) {
  EXPECT_EQ(Layout("0B", 1).calls("report", "dp"), "step");
  EXPECT_EQ(Layout("0B", 1).calls("report"), "step; step; step");
}

// The verdict on a plan whose joint function has been tampered with.
template <class Tamper>
std::string verdict(Tamper&& tamper) {
  const Layout layout("1GiB");
  Plan plan = layout.plan();
  PlannedFunction& joint = plan.functions.back();
  EXPECT_EQ(joint.joins.size(), 6u);
  tamper(joint);
  try {
    check_plan(layout.program(), plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Bundles, LoseNoOp) {
  const std::string lost = verdict([](PlannedFunction& joint) {
    joint.steps.pop_back();
    --joint.pieces.front().last;
  });
  EXPECT_NE(lost.find("before it is summed over the ranks"), std::string::npos) << lost;
  const std::string never_had =
      verdict([](PlannedFunction& joint) { joint.joins.push_back(joint.joins.front()); });
  EXPECT_NE(never_had.find("has lost ops of those that it joins"), std::string::npos) << never_had;
}

}  // namespace
}  // namespace prun::test::bundles_test
