// How parameters start: every element is the number of its parameter's stream, whoever holds it, in whichever
// format and however the work was cut.
#include "train/checkpoint/start_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/random.hpp"
#include "execute/plan_memory.hpp"
#include "prun/split_master.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::weights_test {
namespace {

template <class T>
T element(const std::vector<std::byte>& bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

bool is(float number, DType type, const std::vector<std::byte>& bytes, std::int64_t i) {
  if (type == DType::f64) return element<double>(bytes, i) == number;
  if (type == DType::f32) return element<float>(bytes, i) == number;
  return element<std::uint16_t>(bytes, i) == (type == DType::u16 ? low_half(number) : rounded_half(number));
}

// Of a fresh trainer; returns the elements looked at.
std::int64_t expect_initial(Trainer& trainer) {
  const Assembly& assembly = trainer.assembly();
  std::int64_t seen = 0;
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    const Init init = assembly.program().value(id).init;
    const std::string name = assembly.full_name(id, instance);
    const RandomStream stream(11, stream_id(name));
    for (Kept kept : {Kept::parameter, Kept::master})
      each_held(assembly.program(), assembly.rank(), id, instance, kept, [&](const HeldRun& run) {
        const std::vector<std::byte> bytes = run.read(trainer.memory());
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < run.count; ++i) {
          const double normal = stream.normal(static_cast<std::uint64_t>(run.whole + i));
          const double number = init.kind == Init::Kind::normal ? init.value * normal : init.value;
          wrong += !is(static_cast<float>(number), run.type, bytes, i);
        }
        EXPECT_EQ(wrong, 0) << name << " from element " << run.whole << " on, as " << name_of(run.type);
        seen += run.count;
      });
  });
  return seen;
}

// The widest weight is longer than what is drawn at a time, and no multiple of it.
Recipe wide_recipe(std::vector<std::string> sets, const std::string& layout = {}) {
  sets.insert(sets.end(),
              {"run.seed=11", "model.layers=1", "model.hidden=32", "model.ffn=9001", "batch.micro=1"});
  return tiny_recipe(sets, layout);
}

// All weights that start from normal numbers, each as much wider as model.init_std says.
TEST(InitialValues, HaveTheModelsDeviation) {
  const std::vector<std::string> experts = {
      "model.plugin=llama",  "model.ffn=32",       "model.experts=4",       "model.expert_ffn=16",
      "model.shared_ffn=16", "model.mtp_layers=1", "model.shared_gate=true"};
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"model.plugin=gpt"}, {"model.plugin=llama", "model.ffn=32"}, experts}) {
    const auto values = [&](const char* deviation) {
      std::vector<std::string> all = sets;
      if (*deviation) all.push_back(std::string("model.init_std=") + deviation);
      const Assembly assembly(tiny_recipe(all), plugins());
      std::vector<double> found;
      for (const Id id : assembly.program().parameters())
        if (const Init init = assembly.program().value(id).init; init.kind == Init::Kind::normal)
          found.push_back(init.value);
      return found;
    };
    const std::vector<double> usual = values(""), wide = values("0.2");
    ASSERT_GT(usual.size(), 5u);
    ASSERT_EQ(wide.size(), usual.size());
    EXPECT_EQ(values("0.02"), usual);
    for (std::size_t i = 0; i < usual.size(); ++i) EXPECT_NEAR(wide[i] / usual[i], 10, 1e-9) << i;
    EXPECT_NE(std::find(usual.begin(), usual.end(), 0.02), usual.end());
  }
}

TEST(InitialValues, AreThoseOfTheirStreamsInEveryFormat) {
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"precision.compute=fp64", "precision.state=fp64"},
        {"precision.compute=fp32"},
        {"precision.compute=bf16"},
        {"precision.compute=bf16", "precision.master=split"}}) {
    const Assembly assembly(wide_recipe(sets), plugins());
    Trainer trainer(assembly, plugins());
    EXPECT_GT(expect_initial(trainer), 2 * 32 * 9001) << sets.back();
  }
}

// Also where the memory is the device's alone.
TEST(InitialValues, AreTheSameWhereRanksHoldParts) {
  const std::string zero = data_parallel(3) + "[[strategy]]\nplugin = 'zero'\nstage = ";
  for (const std::string device : {"cpu", "cpu-async"})
    for (const char* stage : {"1", "3"}) {
      const Recipe recipe =
          wide_recipe({"precision.compute=bf16", "batch.global=3", "device.plugin=" + device}, zero + stage);
      run_local_ranks(device == "cpu" ? unpinned(recipe) : recipe, plugins().places(),
                      [](Trainer& trainer) { EXPECT_GT(expect_initial(trainer), 32 * 9001 / 3); });
    }
}

}  // namespace
}  // namespace prun::test::weights_test
