// A third party's table, head, exchanges and conversion, which have the traits of built-in ops and other
// names, are treated as those are.
#include <gtest/gtest.h>

#include "placement/pack.hpp"
#include "placement/placement.hpp"
#include "program/flops.hpp"
#include "program/passes.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::own_ops_test {
namespace {

constexpr const char* own_ops = R"(
[plugins]
ops = ["own-ops"]
[[strategy]]
plugin = "swap-activation"
from = "embedding"
to = "rows"
[[strategy]]
plugin = "swap-activation"
from = "lm_head"
to = "head"
[[strategy]]
plugin = "own-exchange"
)";

std::string strategy(const std::string& text) { return "[[strategy]]\nplugin = " + text + "\n"; }

struct Layout {
  std::string mesh, strategies;
  std::vector<std::string> sets;

  Assembly assembly(const std::string& more) const {
    std::vector<std::string> all = {"batch.global=8", "batch.micro=2"};
    all.insert(all.end(), sets.begin(), sets.end());
    return Assembly(tiny_recipe(all, "[mesh]\n" + mesh + "\n" + more + strategies), plugins());
  }
};

std::vector<Layout> layouts() {
  const std::string data = strategy("'data'"), tensor = strategy("'tensor'\nsequence = true");
  const std::string pipeline = strategy("'pipeline'");
  std::vector<Layout> list = {{"tp = 2", tensor, {}},
                              {"pp = 2\ntp = 2", pipeline + tensor, {}},
                              {"dp = 2\ntp = 2", data + tensor, {"precision.reduce=bf16"}}};
  for (const char* stage : {"1", "2", "3"})
    for (const char* reduce : {"precision.reduce=state", "precision.reduce=bf16"})
      list.push_back({"dp = 2", data + strategy(std::string("'zero'\nstage = ") + stage), {reduce}});
  return list;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// The program as it would read with the built-in ops.
std::string in_their_names(const Program& program) {
  std::string text = to_text(program);
  for (const auto& [own, theirs] :
       {std::pair{"= rows(", "= embedding("}, std::pair{"rows_grad(", "embedding_weight_grad("},
        std::pair{"= head(", "= lm_head("}, std::pair{"total_of_all(", "all_reduce_update("},
        std::pair{"largest_of_all(", "all_reduce_max("}, std::pair{" convert(", " cast("},
        std::pair{"(numbers=", "(tokens="}})
    replace_all(text, own, theirs);
  return text;
}

std::string exchanges_of(const Plan& plan) {
  std::ostringstream out;
  for (const Call& call : plan.calls)
    for (const PlannedStep& step : plan.steps(call)) {
      if (!step.exchange) continue;
      const PlannedExchange& e = *step.exchange;
      out << plan.queues[static_cast<std::size_t>(call.queue)].name << " " << call.position << ": "
          << name_of(e.kind) << " " << static_cast<int>(e.reduction) << " " << name_of(e.dtype) << " "
          << e.count << " and " << step.also.size() << "\n";
    }
  return out.str();
}

// The head of others takes none, and says nothing of it.
std::string without_bias(std::string text) {
  replace_all(text, ", bias=-, dbias=&-", "");
  return text;
}

TEST(OwnOps, AreSplitSummedAndPackedAsTheBuiltInOnes) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.mesh + "\n" + layout.strategies);
    const Assembly own = layout.assembly(own_ops), theirs = layout.assembly("");
    EXPECT_NE(to_text(own.program()), to_text(theirs.program()));
    EXPECT_EQ(without_bias(in_their_names(own.program())), without_bias(to_text(theirs.program())));
    EXPECT_EQ(exchanges_of(own.plan()), exchanges_of(theirs.plan()));
    EXPECT_NE(exchanges_of(own.plan()), "");
    EXPECT_EQ(model_flops(own.program()), model_flops(theirs.program()));
  }
}

TEST(OwnOps, AConversionGoesWithTheSumItIsFor) {
  const Assembly assembly = Layout{
      "dp = 2",
      strategy("'data'") + "[plugins]\nops = ['own-ops']\n",
      {"precision.reduce=bf16"}}.assembly("");
  const auto optimizer =
      plugins().create<OptimizerInterface>("optimizer", assembly.recipe().section("optimizer"));
  Program theirs = assembly.program(), own = theirs;
  for (Id segment = 0; segment < own.segment_count(); ++segment)
    for (Id op : own.segment(segment).ops(FunctionKind::reduce)) {
      if (own.op(op).kind() != "cast") continue;
      const double to = own.attr(op, "to"), from = own.attr(op, "from");
      const AttrValue attrs[] = {{"to", to}, {"from", from}};
      own.replace_op(op, "convert", own.op(op).operands, attrs);
    }
  EXPECT_NE(to_text(own), to_text(theirs));
  for (Program* program : {&own, &theirs}) pack_state(*program, one_optimizer(*optimizer), {{0}});
  EXPECT_EQ(to_text(own), to_text(theirs));
}

// ---------------------------------------------------------------- FLOPs

struct LateLoss {
  static constexpr const char* kind = "late_loss";
  static constexpr const char* help = "a loss whose gradient comes in backward";
  static constexpr OperandDef operands[] = {{"x"}, {"loss", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { s.sum(0, 0, s.operand[0].rank); }
  static void gradient(const Gradient&) {}
  static void cost(const OpShape&, OpCost& c) { c.flops = 10; }
};

TEST(OwnOps, ALossWithItsGradientInBackwardCountsThreePasses) {
  auto registry = std::make_shared<OpRegistry>();
  registry->add(op_def<LateLoss>(), "test");
  Program program(registry, {}, {2, 4});
  const Segment s = ProgramRef(&program_api(), &program).segment("head");
  s.ops("late_loss", {s.vector("x", {{"hidden", 6}}, zeros()), s.runtime("loss_sum")}, 0);
  EXPECT_EQ(model_flops(program), 30);
}

// ---------------------------------------------------------------- exchanges that stand in the program
// already

// A sum over the batch, which `finish` exchanges and reads.
Program summed(const char* exchanged) {
  Program program(std::make_shared<OpRegistry>(), {}, {4, 4});
  program.set_mesh(Mesh({{"dp", 2}}));
  program.split("batch", "dp");
  const Segment s = ProgramRef(&program_api(), &program).segment("block");
  const Id step = program.step_segment(), total = program.runtime("total");
  program.add_op(step, FunctionKind::begin, Part::input, "zero", {total}, {});
  const Id x = s.op("embedding", {s.tokens(), s.weight("table", {{"rows", 8}, {"hidden", 6}}, zeros())});
  s.ops("sum_squares", {x, total}, 0);
  program.add_op(step, FunctionKind::finish, Part::input, "all_reduce_update", {program.runtime(exchanged)},
                 {});
  program.add_op(step, FunctionKind::finish, Part::input, "reciprocal", {total, program.runtime("inverse")},
                 {});
  return program;
}

TEST(Placement, AnExchangeThatIsThereAlreadyIsNotMadeAgain) {
  Program program = summed("total");
  place_on_mesh(program);
  EXPECT_EQ(program.segment(program.step_segment()).ops(FunctionKind::finish).size(), 2u);
}

TEST(Placement, AnExchangeOfWhatEveryRankHasWholeIsRefused) {
  Program program = summed("inverse");
  try {
    place_on_mesh(program);
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "axis 'dp': segment 'step', op 'all_reduce_update': 'inverse' is replicated but must be a "
                 "partial sum to be exchanged");
  }
}

// A gather along dimension `dim` of [batch, seq, hidden], whose batch is split.
AxisPlacement gathered(double dim) {
  Program program = summed("total");
  const Segment s(ProgramRef(&program_api(), &program), program.step_segment() + 1);
  const Id x = program.op(s.operations(FunctionKind::forward)[0]).operands[2];
  const Id blocks = s.op("all_gather", {x}, {{"axis", 0}, {"dim", dim}, {"parts", 2}});
  place_on_mesh(program);
  return program.value(blocks).on(0);
}

TEST(Placement, AGatherThatIsThereAlreadyMustFindPartsOfItsDimension) {
  EXPECT_TRUE(gathered(0).is_replicated());
  EXPECT_THROW(gathered(1), Error);
}

}  // namespace
}  // namespace prun::test::own_ops_test
