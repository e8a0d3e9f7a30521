// Updates that begin before the norm of all gradients is known: the bits are those of updates that wait for
// it, in steps within the limit, beyond it, and not kept.
#include <gtest/gtest.h>

#include <set>

#include "base/text.hpp"
#include "clipped_runs.hpp"
#include "plan/proof/call_replay.hpp"
#include "program/update.hpp"

namespace prun::test::speculation_test {
namespace {

constexpr int steps = 8;
// In steps of these recipes norms are on either side of it.
constexpr double limit = 0.95;

std::vector<Layout> speculating_layouts() {
  const std::string data = "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n",
                    zero3 = data + "[[strategy]]\nplugin = 'zero'\nstage = 3\nreduce = 'step'\n";
  const std::vector<std::string> split = {"precision.compute=bf16", "precision.master=split",
                                          "precision.gradient=bf16"};
  return {{"one", "", {}},
          {"one_microbatch", "", {"batch.order=depth_first", "batch.micro=4", "batch.global=4"}},
          {"tied", "", {"model.tied=true"}},
          {"split", "", split},
          {"moments", "", with(split, {"precision.moments=bf16"})},
          {"codes", "", with(split, {"precision.moments=8bit"})},
          {"average", "[[strategy]]\nplugin = 'average'\ndecay = 0.9\n", {}},
          {"momentum", "", {"optimizer.plugin=sgd", "optimizer.momentum=0.9", "optimizer.lr=0.3"}},
          {"data", data, {}},
          {"zero3", zero3, {}},
          {"stages",
           "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n",
           {"batch.order=depth_first", "batch.micro=4", "batch.global=4"}},
          {"tensor", "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n", {}}};
}

class Speculation : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  static Recipe recipe_of(bool speculates, const std::vector<std::string>& more,
                          const std::string& text = "") {
    const auto& [layout, target] = GetParam();
    const std::vector<std::string> common = {"model.layers=3", "optimizer.lr=0.01",
                                             "batch.order=breadth_first"};
    return tiny_recipe(with(with(with(target.sets, common), layout.sets), more),
                       text + layout.text + everything_on_host(speculates));
  }
};

TEST_P(Speculation, HasTheBitsOfUpdatesThatWait) {
  const std::vector<std::string> clip = {"optimizer.clip=" + std::to_string(limit)};
  const ClippedRun speculating = trained_clipped(recipe_of(true, clip), steps),
                   waiting = trained_clipped(recipe_of(false, clip), steps);
  expect_same(speculating, waiting);
  EXPECT_EQ(waiting.planned, 0);
  EXPECT_GT(waiting.beyond(limit), 0);
  EXPECT_LT(waiting.beyond(limit), steps);
  EXPECT_GT(speculating.speculated, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Speculation,
                         testing::Combine(testing::ValuesIn(speculating_layouts()),
                                          testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

// The first call of a step takes so long that the norm is known before most others begin: these are left out,
// and their layers are updated once.
TEST(SpeculationThatIsLate, IsLeftOutAndLeavesTheBits) {
  using namespace std::chrono_literals;
  for (const Target& target : targets()) {
    const std::vector<std::string> sets =
        with(target.sets, {"model.layers=6", "optimizer.lr=0.01", "batch.order=breadth_first",
                           "optimizer.clip=" + std::to_string(limit)});
    const ClippedRun late = trained_clipped(tiny_recipe(sets, everything_on_host(true)), steps, 100ms),
                     waiting = trained_clipped(tiny_recipe(sets, everything_on_host(false)), steps);
    expect_same(late, waiting, target.name);
    EXPECT_GT(waiting.beyond(limit), 0);
    EXPECT_LT(waiting.beyond(limit), steps);
    EXPECT_GT(late.speculated, 0) << target.name;
    EXPECT_LT(late.speculated, late.planned) << target.name;
  }
}

// A step has a gradient that is not finite, among steps on either side of the limit.
class SpeculationOfAStep : public testing::TestWithParam<const char*> {};

TEST_P(SpeculationOfAStep, ThatIsNotKeptLeavesNoTrace) {
  const std::string spoil =
      "[plugins]\nops = ['spoil']\n[[strategy]]\nplugin = 'spoil'\nsegment = 'block'\ntensor = "
      "'down.weight'\n"
      "layer = 2\nsample = 37\n";
  const std::vector<std::string> sets = {"model.layers=4",    "batch.global=8",
                                         "batch.micro=8",     std::string("run.on_nonfinite=") + GetParam(),
                                         "optimizer.lr=0.01", "optimizer.clip=" + std::to_string(limit)};
  const ClippedRun speculating = trained_clipped(tiny_recipe(sets, spoil + everything_on_host(true)), steps),
                   waiting = trained_clipped(tiny_recipe(sets, spoil + everything_on_host(false)), steps);
  expect_same(speculating, waiting);
  EXPECT_FALSE(waiting.kept[4]);
  EXPECT_GT(waiting.beyond(limit), 1) << "besides the one that is not finite";
  EXPECT_LT(waiting.beyond(limit), steps);
  EXPECT_GT(speculating.speculated, 0);
}

INSTANTIATE_TEST_SUITE_P(OnNonfinite, SpeculationOfAStep, testing::Values("skip", "stop"),
                         [](const auto& tested) { return std::string(tested.param); });

// A scale of the loss is a factor that each update needs: these wait, and are as without.
TEST(SpeculationWithAScale, IsNotPlanned) {
  const std::vector<std::string> sets = {"precision.compute=fp16", "optimizer.clip=0.9",
                                         "batch.order=breadth_first"};
  const ClippedRun one = trained_clipped(tiny_recipe(sets, everything_on_host(true)), steps),
                   other = trained_clipped(tiny_recipe(sets, everything_on_host(false)), steps);
  expect_same(one, other);
  EXPECT_EQ(one.planned, 0);
}

// ---------------------------------------------------------------- plans

struct Planned {
  std::int64_t held = 0, needed = 0;  // bytes of older state, and of the host in all
  std::int64_t saves = 0;             // bytes that saves pass through
  int updates = 0;                    // number of those that are speculative
};

const std::vector<std::string> eight_layers = {"model.layers=8", "optimizer.clip=1", "batch.micro=4",
                                               "batch.global=4"};

Planned planned(bool speculates, const std::vector<std::string>& more = {}) {
  const Assembly assembly(tiny_recipe(with(eight_layers, more), everything_on_host(speculates)), plugins());
  return {assembly.plan().layout.memory.bytes[Region::arrived],
          assembly.bytes_in_memory_of(0, assembly.plan()) + assembly.process_bytes_of(0),
          assembly.process_need().save_bytes, assembly.plan().speculated()};
}

std::string of_memory(double bytes) { return "device.plan_gib=" + format("%.17g", bytes / (1 << 30)); }

const std::vector<std::string> wide = {"model.hidden=256"};

constexpr std::int64_t numbers = 4096;  // bytes that speculation takes even if no layer has room

// Returns the ops of layers that run before the norm is known.
std::set<std::string> ops_of_speculation(const std::vector<std::string>& more) {
  const Assembly assembly(tiny_recipe(with(eight_layers, more), everything_on_host(true)), plugins());
  std::set<std::string> ops;
  for (const PlannedFunction& function : assembly.plan().functions)
    if (function.kind == FunctionKind::speculate && function.segment != assembly.program().step_segment())
      for (const PlannedStep& step : function.steps) ops.emplace(assembly.program().op(step.op).kind());
  return ops;
}

// A pass of its own that copies the old state would read it once more.
TEST(SpeculationInAPlan, KeepsTheOldStateInThePassThatUpdates) {
  using Ops = std::set<std::string>;
  const Ops at_once = {"begin_speculation", "adamw_keeping_old"};
  const std::vector<std::string> bf16 = {"precision.compute=bf16"},
                                 split = with(bf16, {"precision.master=split"});
  for (const std::vector<std::string>& more : {{}, bf16, split, with(split, {"precision.moments=bf16"})})
    EXPECT_EQ(ops_of_speculation(more), at_once) << testing::PrintToString(more);
  EXPECT_EQ(ops_of_speculation({"optimizer.plugin=sgd"}), (Ops{"begin_speculation", "keep_old", "sgd"}));
  EXPECT_EQ(ops_of_speculation({"device.fuse=false"}), (Ops{"begin_speculation", "keep_old", "adamw"}));
}

// Copies of older state take seven eighths of what other uses leave of the host's memory, layer by layer.
TEST(SpeculationInAPlan, HoldsAsManyLayersAsThereIsRoomFor) {
  const Planned waiting = planned(false, wide), speculating = planned(true, wide);
  EXPECT_EQ(waiting.held, 0);
  EXPECT_EQ(speculating.updates, 10) << "those of eight layers, embedding and head";
  std::vector<int> updates;
  for (const double share : {0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0}) {
    const double least = static_cast<double>(waiting.needed + numbers),
                 most = static_cast<double>(speculating.needed), taken = share * std::max(0.0, most - least),
                 spare = taken / 7;
    const Planned some = planned(true, with(wide, {of_memory(least + taken + spare)}));
    EXPECT_LE(static_cast<double>(some.needed), least + taken) << share;
    updates.push_back(some.updates);
  }
  EXPECT_TRUE(std::is_sorted(updates.begin(), updates.end())) << testing::PrintToString(updates);
  EXPECT_EQ(updates.front(), 0);
  EXPECT_EQ(updates.back(), speculating.updates);
  EXPECT_GE(std::set(updates.begin(), updates.end()).size(), 5u) << testing::PrintToString(updates);
}

// Saves pass through as much memory as without: older state takes what they leave.
TEST(SpeculationInAPlan, LeavesSavesWhatTheyHaveWithout) {
  const std::vector<std::string> saves = {"run.save_every=2", "model.hidden=512"};
  const Planned least = planned(false, with(saves, {"run.save_memory=16MiB"})),
                all = planned(true, with(saves, {"run.save_memory=16MiB"}));
  ASSERT_GT(all.held, 64 << 20);
  for (const double share : {0.0, 0.2, 0.5, 1.0, 2.0, 4.0}) {
    const std::vector<std::string> room = with(saves, {of_memory(static_cast<double>(least.needed + numbers) +
                                                                 share * static_cast<double>(all.held))});
    const Planned waiting = planned(false, room), speculating = planned(true, room);
    // What the process keeps of the calls that speculate is in the ten thousandths of it.
    EXPECT_GE(static_cast<double>(speculating.saves), 0.999 * static_cast<double>(waiting.saves)) << share;
    EXPECT_EQ(waiting.updates, 0);
    EXPECT_TRUE(share < 4.0 || speculating.updates == all.updates);
  }
}

// Steps of several sizes need memory for the calls of each: fewer layers are speculative then.
TEST(SpeculationInAPlan, LeavesRoomForStepsOfEachSize) {
  const std::vector<std::string> steady = with(wide, {"batch.global=16", "batch.order=breadth_first"}),
                                 sizes = with(steady, {"batch.ramp.sizes=[4, 8]", "batch.ramp.until=[2, 4]"});
  const Planned without = planned(true, steady), of_each = planned(true, sizes),
                waiting = planned(false, sizes);
  ASSERT_GT(of_each.needed, without.needed);
  const Planned some = planned(true, with(sizes, {of_memory(static_cast<double>(without.needed))}));
  EXPECT_LT(some.updates, of_each.updates);
  EXPECT_GT(some.updates, 0);
  EXPECT_LE(some.needed, without.needed);
  constexpr std::int64_t of_three_sizes = 3 * numbers;
  EXPECT_EQ(
      planned(true, with(sizes, {of_memory(static_cast<double>(waiting.needed + of_three_sizes))})).updates,
      0);
}

// ---------------------------------------------------------------- programs

const std::vector<std::string> three_layers = {"model.layers=3", "optimizer.lr=0.01", "optimizer.clip=0.95"};
const std::string edit = "[[strategy]]\nplugin = 'own-rate-memory'\nsegment = 'block'\n";

std::string refused(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "nothing";
}

// Behind offload, what a strategy makes of `update` would be lost in steps that speculate; in front of it, it
// is part of the update that offload finds.
TEST(SpeculationAndEdits, OfTheUpdateAreMadeInFrontOfItOrRefused) {
  EXPECT_EQ(refused([] { Assembly(tiny_recipe(three_layers, everything_on_host(true) + edit), plugins()); }),
            "cannot settle updates of segment 'block': op 'scale' of `update` is not in `settle`; let "
            "strategies that "
            "edit `update` stand in front of the one that writes `settle`, or keep that from it (offload: "
            "speculate = "
            "\"none\")");
  const ClippedRun in_front =
                       trained_clipped(tiny_recipe(three_layers, edit + everything_on_host(true)), steps),
                   waiting =
                       trained_clipped(tiny_recipe(three_layers, edit + everything_on_host(false)), steps);
  expect_same(in_front, waiting);
  EXPECT_GT(in_front.planned, 0);
}

TEST(SpeculationAndEdits, OfAnAttributeOrOfOneFunctionAloneAreRefused) {
  const Assembly assembly(tiny_recipe(three_layers, everything_on_host(true)), plugins());
  EXPECT_NO_THROW(check_settled(assembly.unlowered()));
  const Id block = [&] {
    for (Id id = 0;; ++id)
      if (assembly.unlowered().segment(id).name == "block") return id;
  }();
  Program slower = assembly.unlowered();
  slower.set_attr(slower.segment(block).ops(FunctionKind::update).back(), "lr_scale", 0.5);
  EXPECT_NE(refused([&] { check_settled(slower); }).find("op 'adamw' of `update` is not in `settle`"),
            std::string::npos);
  for (const FunctionKind kind : {FunctionKind::speculate, FunctionKind::settle}) {
    Program half = assembly.unlowered();
    for (const Id op : std::vector(half.segment(block).ops(kind))) half.erase_op(op);
    EXPECT_EQ(
        refused([&] { check_settled(half); }),
        "cannot settle updates of segment 'block': it has ops in one of `speculate` and `settle`; write "
        "both, or neither");
  }
  // What is changed in `update` and `settle` would be lost in steps within the limit.
  slower.set_attr(slower.segment(block).ops(FunctionKind::settle).back(), "lr_scale", 0.5);
  EXPECT_NE(refused([&] { check_settled(slower); }).find("op 'adamw' of `update` is not in `speculate`"),
            std::string::npos);
  Program without = assembly.unlowered();
  without.erase_op(without.segment(block).ops(FunctionKind::update).back());
  EXPECT_NE(refused([&] { check_settled(without); }).find("op 'adamw' of `settle` is not in `update`"),
            std::string::npos);
  Program frozen = assembly.unlowered();
  const Id last = frozen.segment(block).ops(FunctionKind::update).back();
  const Op& op = frozen.op(last);
  const auto keep = static_cast<std::size_t>(
      std::find_if(op.def->operands, op.def->operands + op.def->operand_count,
                   [](const OperandDef& operand) { return operand.name == std::string_view("keep"); }) -
      op.def->operands);
  ASSERT_LT(keep, op.operands.size());
  frozen.replace_operand(last, keep, frozen.runtime("another.keep"));
  EXPECT_NE(refused([&] { check_settled(frozen); }).find("op 'adamw' of `update` is not in `settle`"),
            std::string::npos);
}

// A plan in which a layer is updated speculatively and nothing completes that, or which updates it twice.
TEST(SpeculationInAPlan, IsProvenToUpdateEachLayerOnce) {
  const Assembly assembly(tiny_recipe(three_layers, everything_on_host(true)), plugins());
  const auto checked = [&](const Plan& plan) {
    CalledPieces called;
    for (const Call& call : plan.calls) called.emplace(call.function, call.piece);
    check_effects(assembly.program(), plan, called);
  };
  EXPECT_NO_THROW(checked(assembly.plan()));
  for (const FunctionKind kind : {FunctionKind::speculate, FunctionKind::settle}) {
    Plan lacks = assembly.plan();
    const auto last = std::find_if(lacks.calls.rbegin(), lacks.calls.rend(), [&](const Call& call) {
      return lacks.functions[call.function].kind == kind && call.instance > 0;
    });
    ASSERT_NE(last, lacks.calls.rend());
    lacks.calls.erase(std::next(last).base());
    EXPECT_THROW(checked(lacks), Error) << name_of(kind);
  }
}

}  // namespace
}  // namespace prun::test::speculation_test
