// Holds what tests of exchanges in codes share: layouts, runs of all ranks, bytes that a rank sends, and
// refusals.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/planned_traffic.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test {

struct CodedLayout {
  const char* name;
  std::string text;  // has mesh and strategies
  std::vector<std::string> sets;
  friend std::ostream& operator<<(std::ostream& out, const CodedLayout& l) { return out << l.name; }
};

inline const std::string dp2tp2 =
    "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\n";
inline const std::string dp2pp2 =
    "[mesh]\ndp = 2\npp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'pipeline'\n"
    "schedule = '1f1b'\n";
// Returns the text of `hosts` hosts of `gpus` ranks each.
inline std::string hosts_of(int hosts, int gpus) {
  return "[mesh]\nhosts = " + std::to_string(hosts) + "\ngpus = " + std::to_string(gpus) +
         "\n[[strategy]]\nplugin = 'data'\naxis = 'hosts'\n[[strategy]]\nplugin = 'data'\naxis = 'gpus'\n";
}

// Sets the arithmetic that `verify` compares exactly in, with dead memory poisoned.
inline const std::vector<std::string> exact_and_poisoned = {"precision.compute=fp64", "precision.state=fp64",
                                                            "device.pin=false", "device.threads=1",
                                                            "run.poison=true"};

// Returns the section of strategy fp8 with those of the settings that are written "fp8.KEY=VALUE", and takes
// these out.
inline std::string section_of_fp8(std::vector<std::string>& sets) {
  constexpr std::string_view own = "fp8.";
  std::string section = "[[strategy]]\nplugin = 'fp8'\n";
  for (const std::string& set : sets)
    if (set.starts_with(own)) section += set.substr(own.size()) + "\n";
  std::erase_if(sets, [&](const std::string& set) { return set.starts_with(own); });
  return section;
}

// Returns a recipe with products in fp8, in widths of which two ranks of `tensor` have whole blocks each.
inline Recipe recipe_in_fp8(const std::string& text, std::initializer_list<std::vector<std::string>> sets) {
  std::vector<std::string> all = {"model.hidden=256", "model.heads=2", "model.ffn=256", "optimizer.clip=1"};
  for (const std::vector<std::string>& some : sets) all.insert(all.end(), some.begin(), some.end());
  const std::string section = section_of_fp8(all);
  return tiny_recipe(all, text + section);
}

// Expects it in the arithmetic that `verify` compares exactly in.
inline void expect_equals_one_rank(const Recipe& recipe, int steps) {
  const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), steps);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_EQ(verdict.bound, 1e-9);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

using Numbers = std::vector<std::vector<double>>;  // by rank

// Returns losses of some steps and the parameters behind them.
inline Numbers trained(const Recipe& recipe, int steps, bool saves = false) {
  Numbers all(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    std::vector<double> numbers = train_steps(trainer, steps);
    const std::vector<double> parameters = parameters_of(trainer);
    numbers.insert(numbers.end(), parameters.begin(), parameters.end());
    if (saves) trainer.save();
    all[static_cast<std::size_t>(trainer.assembly().rank())] = std::move(numbers);
  });
  return all;
}

// Returns, by queue, the bytes that the first rank sends in a step, as the comm plugin counted them; it
// expects of every rank what the plan says.
inline std::map<std::string, std::uint64_t> sent_in_a_step(const Recipe& recipe) {
  std::map<std::string, std::uint64_t> sent;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    trainer.step();
    expect_planned_traffic(trainer);
    if (trainer.assembly().rank() != 0) return;
    const std::vector<QueueInfo>& queues = trainer.assembly().plan().queues;
    for (std::size_t q = 0; q < queues.size(); ++q)
      if (queues[q].communicates()) sent[queues[q].name] = trainer.communicators()->counters(q).bytes_sent;
  });
  return sent;
}

// Returns the refusal of a recipe that cannot be planned, or not be verified; it is empty where it can.
inline std::string refusal(const Recipe& recipe, bool verifies = false) {
  try {
    const Assembly assembly(recipe, plugins());
    if (verifies) verify_layout(recipe, plugins().places(), 1);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return {};
}

inline void expect_refused(const std::string& said, const std::string& because) {
  EXPECT_NE(said.find(because), std::string::npos) << said;
}

}  // namespace prun::test
