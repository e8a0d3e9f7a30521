// Ops that the device puts in the place of several: attention on the packed projection of a GPT, and what
// passes a norm by added to its gradient.
#include <gtest/gtest.h>

#include "program/flops.hpp"
#include "program/passes.hpp"
#include "program/recompute.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"

namespace prun::test::lowering_test {
namespace {

constexpr const char* apart[] = {"split_heads", "attention", "attention_grad", "join_heads"};
constexpr const char* packed[] = {"attention_packed", "attention_packed_grad"};

std::int64_t count_of(const Program& program, std::string_view kind) {
  std::int64_t count = 0;
  for (Id id = 0; id < program.segment_count(); ++id)
    for (const std::vector<Id>& ops : program.segment(id).functions)
      for (Id op : ops) count += program.op(op).kind() == kind;
  return count;
}

// So that attention's values matter more than what kernels need for themselves. For plans alone.
const std::vector<std::string> large = {"model.seq=256",   "model.hidden=64", "model.ffn=16",
                                        "batch.global=16", "batch.micro=16",  "device.threads=1"};

Assembly assembly_of(std::vector<std::string> sets, bool fuse, const std::string& more = {}) {
  sets.push_back(fuse ? "device.fuse=true" : "device.fuse=false");
  return Assembly(tiny_recipe(sets, more), plugins());
}

std::string recompute_strategy(const std::string& options) {
  return "[[strategy]]\nplugin = \"recompute\"\n" + options + "\n";
}

void expect_fused(const Program& program, std::int64_t forward, std::int64_t backward) {
  for (const char* kind : apart) EXPECT_EQ(count_of(program, kind), 0) << kind;
  EXPECT_EQ(count_of(program, packed[0]), forward);
  EXPECT_EQ(count_of(program, packed[1]), backward);
}

TEST(Lowering, AttentionRunsOnThePackedProjection) {
  const Assembly assembly = assembly_of({}, true);
  for (const char* kind : apart) EXPECT_EQ(count_of(assembly.unlowered(), kind), 1) << kind;
  for (const char* kind : packed) EXPECT_EQ(count_of(assembly.unlowered(), kind), 0) << kind;
  expect_fused(assembly.program(), 1, 1);
  const std::string text = to_text(assembly.program());
  EXPECT_NE(text.find("= attention_packed(x=%"), std::string::npos) << text;
  EXPECT_EQ(text.find("split_heads"), std::string::npos) << text;
}

TEST(Lowering, ModelFlopsAreThoseOfWhatTheModelWrote) {
  const Assembly fused = assembly_of({}, true), plain = assembly_of({}, false);
  EXPECT_EQ(to_text(fused.unlowered()), to_text(plain.program()));
  EXPECT_EQ(to_text(plain.unlowered()), to_text(plain.program()));
  EXPECT_EQ(model_flops(fused.unlowered()), model_flops(plain.unlowered()));
  // Only copies fall away: what the steps are priced by has the same FLOPs and fewer bytes.
  OpCost with, without;
  for (const PlannedFunction& f : fused.plan().functions)
    with.flops += f.cost.flops, with.bytes += f.cost.bytes;
  for (const PlannedFunction& f : plain.plan().functions)
    without.flops += f.cost.flops, without.bytes += f.cost.bytes;
  EXPECT_EQ(with.flops, without.flops);
  EXPECT_LT(with.bytes, without.bytes);
}

const std::vector<std::string> llama = {"model.plugin=llama", "model.ffn=64", "model.kv_heads=2"};

TEST(Lowering, RopeWritesQueriesKeysAndValuesApart) {
  const Assembly assembly = assembly_of(llama, true);
  EXPECT_EQ(count_of(assembly.program(), "attention"), 1);
  EXPECT_EQ(count_of(assembly.program(), packed[0]), 0);
}

TEST(Lowering, WhatPassesANormByIsAddedToItsGradient) {
  for (const bool gpt : {true, false}) {
    const Assembly assembly = assembly_of(gpt ? std::vector<std::string>() : llama, true);
    const std::string norm = gpt ? "layernorm_input_grad" : "rmsnorm_input_grad";
    EXPECT_EQ(count_of(assembly.unlowered(), "add"), 4);
    EXPECT_EQ(count_of(assembly.program(), "add"), 2) << "those of forward";
    EXPECT_EQ(count_of(assembly.program(), norm), count_of(assembly.unlowered(), norm));
  }
}

// The packed projection is kept in the place of queries, keys and values, which no function has any more.
TEST(Lowering, OnlyThePackedProjectionIsKept) {
  const Assembly fused = assembly_of(large, true), plain = assembly_of(large, false);
  for (Id id : plain.unlowered().segment(2).ops(FunctionKind::forward)) {
    const Op& split = plain.unlowered().op(id);
    if (split.kind() != "split_heads") continue;
    EXPECT_EQ(fused.plan().allocation(split.operands[0]).region, Region::slot);
    EXPECT_EQ(plain.plan().allocations.count(split.operands[0]), 0u);
    for (std::size_t i = 1; i < split.operands.size(); ++i) {
      EXPECT_EQ(fused.plan().allocations.count(split.operands[i]), 0u);
      EXPECT_EQ(plain.plan().allocation(split.operands[i]).region, Region::slot);
    }
  }
  for (const FunctionKind kind : {FunctionKind::forward, FunctionKind::backward}) {
    const auto scratch = [&](const Assembly& assembly) {
      const std::int32_t block = assembly.plan().find(kind, 2);
      return assembly.plan().functions[static_cast<std::size_t>(block)].scratch_bytes;
    };
    EXPECT_LT(scratch(fused), scratch(plain)) << name_of(kind);
  }
  EXPECT_LT(fused.plan().layout.memory.total(), plain.plan().layout.memory.total());
}

// ---------------------------------------------------------------- the same numbers

std::vector<double> numbers_of(std::vector<std::string> sets, bool fuse, const std::string& more) {
  sets.insert(sets.end(), {"run.poison=true", "batch.micro=2"});
  const Assembly assembly = assembly_of(std::move(sets), fuse, more);
  EXPECT_EQ(count_of(assembly.program(), packed[1]), fuse ? 1 : 0);
  Trainer trainer(assembly, plugins());
  std::vector<double> numbers = train_steps(trainer, 3);
  const std::vector<double> parameters = parameters_of(trainer);
  numbers.insert(numbers.end(), parameters.begin(), parameters.end());
  return numbers;
}

TEST(Lowering, KeepsEveryBit) {
  for (const char* type : {"fp64", "fp32", "bf16"})
    for (const std::string& more : {std::string(), recompute_strategy("mode = \"full\""),
                                    recompute_strategy("mode = \"selective\"\nops = [\"attention\"]")}) {
      const std::vector<std::string> sets = {
          std::string("precision.compute=") + type,
          type == std::string("fp64") ? "precision.state=fp64" : "run.seed=2", "model.dropout=0.1",
          "model.seq=80"};
      EXPECT_EQ(numbers_of(sets, true, more), numbers_of(sets, false, more)) << type << "\n" << more;
    }
}

TEST(Lowering, KeepsEveryBitOnSeveralRanks) {
  const std::string tensor = "[mesh]\ntp = 2\n[[strategy]]\nplugin = \"tensor\"\nsequence = true\n";
  const std::string stages = "[mesh]\npp = 2\n[[strategy]]\nplugin = \"pipeline\"\nschedule = \"zb-h1\"\n";
  for (const std::string& layout : {tensor, stages, data_parallel(2)}) {
    const auto recipe = [&](const char* fuse) {
      return tiny_recipe({"device.threads=1", "device.pin=false", "batch.micro=1", fuse}, layout);
    };
    const Recipe fused = recipe("device.fuse=true");
    expect_fused(Assembly(fused, plugins()).program(), 1, 1);
    EXPECT_EQ(run_ranks(fused, 2), run_ranks(recipe("device.fuse=false"), 2)) << layout;
  }
}

// ---------------------------------------------------------------- beside other passes

TEST(Lowering, WhatIsComputedAgainIsFusedToo) {
  const std::string full = recompute_strategy("mode = \"full\"");
  const Assembly assembly = assembly_of({}, true, full);
  expect_fused(assembly.program(), 2, 1);
  EXPECT_NE(to_text(assembly.program()).find("{causal=1}  # again"), std::string::npos);
  EXPECT_EQ(recomputed_text(assembly.unlowered()), recomputed_text(assembly_of({}, false, full).unlowered()));
}

// What must fit is the plan of the lowered program: where that does without recomputation, nothing is
// computed again.
TEST(Lowering, TheBudgetIsThatOfTheLoweredProgram) {
  const std::string budget = recompute_strategy("mode = \"budget\"");
  const auto fitting = [&](std::int64_t bytes, bool fuse) {
    std::vector<std::string> limited = large;
    limited.push_back("device.memory=" + std::to_string(bytes) + "B");
    return assembly_of(limited, fuse, budget);
  };
  const std::int64_t fused = assembly_of(large, true, budget).plan().layout.memory.total();
  const std::int64_t plain = assembly_of(large, false, budget).plan().layout.memory.total();
  ASSERT_LT(fused, plain);
  EXPECT_EQ(recomputed_text(fitting(fused, true).unlowered()), "nothing");
  EXPECT_NE(recomputed_text(fitting(fused, false).unlowered()), "nothing");
  const Assembly tight = fitting(fused - 4096, true);
  EXPECT_NE(recomputed_text(tight.unlowered()), "nothing");
  EXPECT_LE(tight.plan().layout.memory.total(), fused - 4096);
  EXPECT_EQ(count_of(tight.program(), packed[1]), 1);
}

TEST(Lowering, AnotherReaderKeepsHeadsApart) {
  const auto reads = [](const char* op, int operand) {
    return detail::concat("[[strategy]]\nplugin = \"reader\"\nop = \"", op, "\"\noperand = ", operand, "\n");
  };
  // Queries, keys, values; their gradients.
  for (const std::string& more : {reads("split_heads", 1), reads("split_heads", 2), reads("split_heads", 3),
                                  reads("attention_grad", 6), reads("attention_grad", 8)}) {
    const Assembly assembly = assembly_of({}, true, more);
    for (const char* kind : apart) EXPECT_EQ(count_of(assembly.program(), kind), 1) << kind << more;
  }
  // Of what is read and written all the same there may be others.
  expect_fused(assembly_of({}, true, reads("split_heads", 0)).program(), 1, 1);
  expect_fused(assembly_of({}, true, reads("attention", 3)).program(), 1, 1);
  expect_fused(assembly_of({}, true, reads("join_heads", 3)).program(), 1, 1);
}

// ---------------------------------------------------------------- several devices

// The program as strategies left it, with functions of its layers on a second device.
Program on_two_devices(const Assembly& assembly, const std::vector<FunctionKind>& second) {
  Program program = assembly.unlowered();
  const std::int32_t device = program.requests().add_device("cpu");
  for (const FunctionKind function : second) program.run_on(2, function, device);
  return program;
}

// What the device makes of it if it is that number.
Program lowered(const Assembly& assembly, Program program, std::int32_t number) {
  program.show_functions_of(number);
  raise(assembly.devices().front()->lower(&program_api(), &program));
  return program;
}

TEST(Lowering, ADeviceLowersWhatItRuns) {
  const Assembly assembly = assembly_of({}, true);
  const Program program = on_two_devices(assembly, {FunctionKind::forward, FunctionKind::backward});
  EXPECT_EQ(to_text(lowered(assembly, program, 0)), to_text(program));
  expect_fused(lowered(assembly, program, 1), 1, 1);
}

TEST(Lowering, WhatAnotherDeviceReadsStaysApart) {
  const Assembly assembly = assembly_of({}, true);
  for (const FunctionKind second : {FunctionKind::forward, FunctionKind::backward}) {
    const Program program = on_two_devices(assembly, {second});
    for (const std::int32_t number : {0, 1})
      for (const char* kind : apart)
        EXPECT_EQ(count_of(lowered(assembly, program, number), kind), 1) << name_of(second) << number << kind;
  }
}

TEST(Lowering, AnOpInAnothersFunctionIsRefused) {
  Program program = on_two_devices(assembly_of({}, true), {FunctionKind::forward});
  program.show_functions_of(0);
  const Segment block = ProgramRef(&program_api(), &program).segments()[2];
  try {
    block.op("scale", {block.info().outgoing}, {{"factor", 1.0}});
    ADD_FAILURE() << "added";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "cannot add op 'scale' to function 'forward' of segment 'block': another device runs and lowers it");
  }
}

// The device cpu-async says when it is given a function that it must not be.
TEST(Lowering, EveryDeviceOfARankIsGivenItsOwnFunctions) {
  const auto given_update = [](const std::string& second) {
    const std::string more = second.empty() ? "" : offloaded_to(second);
    try {
      const Assembly assembly(tiny_recipe({"device.plugin=cpu-async", "device.refuses=update"}, more),
                              plugins());
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("was given 'update'"), std::string::npos) << error.what();
      return true;
    }
    return false;
  };
  EXPECT_TRUE(given_update("")) << "there is no other";
  EXPECT_FALSE(given_update("cpu")) << "another one runs it";
  EXPECT_TRUE(given_update("cpu-async")) << "another one, with the same options, runs it";
}

TEST(Lowering, AnotherReaderKeepsANormsGradientApart) {
  const auto adds = [](int operand) {
    const std::string more = detail::concat(
        "[[strategy]]\nplugin = \"reader\"\nop = \"layernorm_input_grad\"\noperand = ", operand, "\n");
    return count_of(assembly_of({}, true, more).program(), "add");
  };
  EXPECT_EQ(adds(6), 4) << "others read it as well";
  EXPECT_EQ(adds(0), 2);
}

}  // namespace
}  // namespace prun::test::lowering_test
