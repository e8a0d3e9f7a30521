// Who begins a sum: one contribution for as long as it is one, in every layout; and that the check finds a
// plan in which it is otherwise.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "plan/proof/check_plan.hpp"
#include "support/assembly_fixture.hpp"
#include "support/drawn_recipe.hpp"

namespace prun::test::first_writers_test {
namespace {

FunctionKind kind_of(const Plan& plan, const Call& call) {
  return plan.functions[static_cast<std::size_t>(call.function)].kind;
}

// Kinds of ops that contribute, by what the functions of a step clear.
std::vector<std::string> cleared(const Assembly& assembly) {
  std::vector<std::string> names;
  for (const PlannedFunction& function : assembly.plan().functions)
    for (const PlannedStep& step : function.steps)
      if (step.op != none && assembly.program().op(step.op).def->clears &&
          (function.kind == FunctionKind::zero || function.kind == FunctionKind::clear))
        names.push_back(assembly.program().value(step.operands[0].value).name);
  return names;
}

std::string parts(int stage) {
  return data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}

TEST(FirstWriters, OnlyATableThatIsScatteredIntoIsCleared) {
  using Names = std::vector<std::string>;
  const Names none_at_all;
  for (const std::string& layout : {std::string(), data_parallel(2), parts(1)}) {
    const std::vector<std::string> batch = {"batch.micro=1", "batch.global=4"};
    const auto with = [&](std::vector<std::string> sets) {
      sets.insert(sets.end(), batch.begin(), batch.end());
      return cleared(Assembly(tiny_recipe(sets, layout), plugins()));
    };
    EXPECT_EQ(with({"model.tied=true"}), none_at_all) << layout;
    EXPECT_EQ(with({"model.tied=false"}).size(), 1u) << layout;
    EXPECT_EQ(with({"model.plugin=llama", "model.tied=false"}).size(), 1u) << layout;
  }
}

// Gradients kept in parts lie in memory that others use in between: their padding is cleared as well.
TEST(FirstWriters, PaddingIsClearedWhereOthersUseItsMemory) {
  const Assembly assembly(tiny_recipe({"model.tied=true", "batch.global=8"}, parts(2)), plugins());
  const std::vector<std::string> names = cleared(assembly);
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) EXPECT_NE(name.find(".padding."), std::string::npos) << name;
}

// How the sums of a plan go, counted without knowing how they were decided.
class Sums {
 public:
  explicit Sums(const Assembly& assembly) : program_(assembly.program()), plan_(assembly.plan()) {}

  void run() {
    for (const Call& call : plan_.calls) {
      const std::span<const PlannedStep> steps = plan_.steps(call);
      for (std::size_t s = 0; s < steps.size(); ++s)
        if (steps[s].op != none) follow(call, steps[s], call.first_of(s));
    }
    EXPECT_GT(begun_, 0);
  }

 private:
  void follow(const Call& call, const PlannedStep& step, std::uint32_t first) {
    const Op& op = program_.op(step.op);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      const Value& value = program_.value(op.operands[i]);
      const bool all = value.role == Role::view && kind_of(plan_, call) == FunctionKind::reduce;
      if (all && op.access(i) == Access::read) hand_over(call, value);
      if (value.role != Role::gradient) continue;
      const Address& address = step.operands[i].address;
      const bool fixed = address.whose == Whose::fixed;
      const std::pair sum{op.operands[i], fixed ? address.instance : call.instance};
      const bool arrives = op.def->copies && op.access(i) == Access::write;
      if (op.def->clears || arrives || (first >> i & 1) != 0) {
        EXPECT_TRUE(alive_.insert(sum).second) << value.name << " begins twice";
        ++begun_;
      } else {
        EXPECT_EQ(alive_.count(sum), 1u) << value.name << " is used before it begins";
      }
    }
  }

  void hand_over(const Call& call, const Value& view) {
    const Bucket& bucket = program_.buckets()[static_cast<std::size_t>(view.bucket)];
    if (!keeps_summed_parts(program_, bucket)) return;
    for (const Id parameter : bucket.parameters)
      std::erase_if(alive_, [&](const auto& sum) {
        return sum.first == program_.value(parameter).gradient && sum.second == call.instance;
      });
  }

  const Program& program_;
  const Plan& plan_;
  std::set<std::pair<Id, std::int32_t>> alive_;
  int begun_ = 0;
};

TEST(FirstWriters, EverySumBeginsOnceInEveryLayout) {
  int planned = 0;
  for (unsigned seed = first_seed(); planned < 40; ++seed) {
    SCOPED_TRACE("PRUN_SEED=" + std::to_string(seed));
    try {
      const Recipe recipe =
          Recipe::parse(drawn_recipe(seed, Scale::small), "drawn.toml", {}, plugins().catalog());
      for (const std::int64_t rank : {std::int64_t{0}, mesh_of(recipe).world() - 1})
        Sums(Assembly(recipe, plugins(), rank)).run();
      ++planned;
    } catch (const Error& error) {
      EXPECT_TRUE(is_permitted_refusal(error.what())) << error.what();
    }
  }
}

// ---------------------------------------------------------------- plans that are wrong

std::string verdict(const Assembly& assembly, const std::function<void(Plan&)>& change) {
  Plan plan = assembly.plan();
  change(plan);
  try {
    check_plan(assembly.program(), plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

#define EXPECT_SAYS(text, part) EXPECT_NE(text.find(part), std::string::npos) << text

Call& first_beginning(Plan& plan, FunctionKind kind) {
  for (Call& call : plan.calls)
    if (kind_of(plan, call) == kind && !call.first.empty()) return call;
  throw_error(ErrorCode::internal, "no call begins a sum");
}

class Mutants : public testing::Test {
 protected:
  Assembly one{tiny_recipe({"batch.micro=1", "batch.global=4"}), plugins()};
  Assembly zero1{tiny_recipe({"batch.micro=1", "batch.global=4"}, parts(1)), plugins()};
  Assembly zero2{tiny_recipe({"batch.micro=1", "batch.global=4"}, parts(2)), plugins()};
  Assembly zero3{tiny_recipe({"batch.micro=1", "batch.global=4", "model.layers=4"}, parts(3)), plugins()};
};

TEST_F(Mutants, ASumThatNobodyBegins) {
  for (const Assembly* assembly : {&one, &zero1, &zero2, &zero3}) {
    const std::string text =
        verdict(*assembly, [](Plan& plan) { first_beginning(plan, FunctionKind::backward).first.clear(); });
    EXPECT_SAYS(text, "wants '");
    EXPECT_SAYS(text, ".gradient' of instance");
    EXPECT_SAYS(text, "but its bytes hold nothing");
  }
}

TEST_F(Mutants, ASumThatTwoBegin) {
  const std::string text = verdict(one, [](Plan& plan) {
    const Call first = first_beginning(plan, FunctionKind::backward);
    for (Call& call : plan.calls)
      if (call.function == first.function && call.piece == first.piece && call.instance == first.instance)
        call.first = first.first;
  });
  EXPECT_SAYS(text, ".gradient' of instance");
  EXPECT_SAYS(text, "which holds contributions already");
}

TEST_F(Mutants, AKernelThatIsToBeginASumAndCannot) {
  const std::string text = verdict(one, [](Plan& plan) {
    for (PlannedFunction& function : plan.functions)
      for (PlannedStep& step : function.steps) step.writes_first = 0;
  });
  EXPECT_SAYS(text, "which its kernel cannot");
}

TEST_F(Mutants, PaddingThatIsNotCleared) {
  const std::string text = verdict(zero2, [](Plan& plan) {
    for (PlannedFunction& function : plan.functions)
      if (function.kind == FunctionKind::clear) {
        function.steps.pop_back();
        --function.pieces.back().last;
        return;
      }
  });
  EXPECT_SAYS(text, ".padding.");
}

TEST_F(Mutants, GradientsOfTwoLayersInOnePlace) {
  const std::string text = verdict(one, [](Plan& plan) {
    auto& gradients = plan.layout.ranges[0].instances[static_cast<std::size_t>(Region::gradient)];
    gradients[2] = gradients[3];
  });
  EXPECT_SAYS(text, "but its bytes hold '");
}

// A call that exchanges in a function of this kind.
Call& exchange_of(Plan& plan, FunctionKind kind) {
  for (Call& call : plan.calls)
    if (kind_of(plan, call) == kind && plan.queues[static_cast<std::size_t>(call.queue)].communicates())
      return call;
  throw_error(ErrorCode::internal, "no such exchange");
}

TEST_F(Mutants, AParameterThatIsNotUpdated) {
  const std::string text = verdict(one, [](Plan& plan) {
    for (PlannedFunction& function : plan.functions)
      if (function.kind == FunctionKind::update) {
        function.steps.pop_back();
        --function.pieces.back().last;
      }
  });
  EXPECT_SAYS(text, "'position' of instance 1 as of update 0 where it wants that of update 1: it is stale");
}

// The parameters are gathered before they are updated, and everybody waits as that order asks.
TEST_F(Mutants, ACopyMadeBeforeTheUpdateIsStale) {
  const std::string text = verdict(zero1, [](Plan& plan) {
    Call gather = exchange_of(plan, FunctionKind::update);
    const auto is_same = [&](const Call& call) {
      return call.queue == gather.queue && call.position == gather.position;
    };
    const auto update = std::find_if(plan.calls.begin(), plan.calls.end(), [&](const Call& call) {
      return call.function == gather.function && call.instance == gather.instance && call.piece == 0;
    });
    gather.waits = {{update->queue, update->position - 1, 0}};
    update->waits.push_back({gather.queue, gather.position, 0});
    const auto at = update - plan.calls.begin();
    plan.calls.erase(std::find_if(plan.calls.begin(), plan.calls.end(), is_same));
    plan.calls.insert(plan.calls.begin() + at, gather);
  });
  EXPECT_SAYS(text, "as of update 0 where it wants that of update 1: it is stale");
}

TEST_F(Mutants, AGatherThatDoesNotWaitForTheUpdate) {
  const std::string text = verdict(zero3, [](Plan& plan) {
    for (Call& call : plan.calls)
      if (kind_of(plan, call) == FunctionKind::gather)
        std::erase_if(call.waits, [](const Wait& wait) { return wait.steps_ago > 0; });
  });
  EXPECT_SAYS(text, "'all_gather'");
  EXPECT_SAYS(text, "without waiting for the queue that writes it");
}

}  // namespace
}  // namespace prun::test::first_writers_test
