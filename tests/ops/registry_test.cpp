// What a definition may not say of an op.
#include "ops/registry.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace prun::test {
namespace {

constexpr OperandDef apart[] = {{"x"}, {"y", Access::write}}, in_place[] = {{"x", Access::update}};
constexpr AttrDef axis[] = {int_attr("axis", 0)};

OpDef exchange(const OpExchange& exchange, Array<OperandDef> operands, Array<AttrDef> attrs) {
  OpDef def;
  def.kind = "mine";
  def.operands = operands.data;
  def.operand_count = operands.size;
  def.attrs = attrs.data;
  def.attr_count = attrs.size;
  def.exchange = &exchange;
  def.rule = [](OpShape*) noexcept { return Status{}; };
  return def;
}

std::string refusal(const OpDef& def) {
  try {
    OpRegistry().add(def, "test");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(OpRegistry, ExchangesAreOfAKindThatCanBePlanned) {
  static constexpr OpExchange sum{CommKind::all_reduce}, parts{CommKind::reduce_scatter},
      swapped{CommKind::all_to_all}, root{CommKind::broadcast};
  EXPECT_EQ(refusal(exchange(sum, {in_place, 1}, {axis, 1})), "");
  EXPECT_EQ(refusal(exchange(sum, {apart, 2}, {axis, 1})), "");
  for (const OpExchange& is : {parts, swapped}) EXPECT_EQ(refusal(exchange(is, {apart, 2}, {axis, 1})), "");
  EXPECT_EQ(refusal(exchange(root, {apart, 2}, {axis, 1})),
            "op plugin 'test': op 'mine' exchanges by broadcast; all_reduce, all_gather, reduce_scatter, "
            "all_to_all and send can be");
  EXPECT_EQ(
      refusal(exchange(parts, {in_place, 1}, {axis, 1})),
      "op plugin 'test': op 'mine' exchanges, so it reads one operand and writes one, or updates its only "
      "one by all_reduce");
  EXPECT_EQ(refusal(exchange(sum, {apart, 2}, {})),
            "op plugin 'test': op 'mine' exchanges, so it has an integer attribute 'axis'");
  static constexpr OpExchange shifted{CommKind::send};
  EXPECT_EQ(refusal(exchange(shifted, {apart, 2}, {axis, 1})),
            "op plugin 'test': op 'mine' exchanges, so it has an integer attribute 'dim'");
}

// Of forward, of one head of queries.
double attention_flops(std::int64_t seq, std::int64_t window, bool causal = true) {
  const Attr attrs[] = {{.i = causal ? 1 : 0}, {.i = window}, {.f = 0}, {.f = 0}, {.i = 0}};
  OpShape shape;
  shape.count = 7;
  shape.attrs = attrs;
  const Dim q[] = {{"batch", 1}, {"seq", seq}, {"heads", 1}, {"queries", 1}, {"head_dim", 16}},
            k[] = {q[0], q[1], q[2], q[4]};
  shape.output(0, DType::f32, q, 5);
  for (int i : {1, 2}) shape.output(i, DType::f32, k, 4);
  const OpRegistry registry;
  const OpDef& def = registry.find("attention");
  raise(def.rule(&shape));
  OpCost cost;
  raise(def.cost(&shape, &cost));
  return cost.flops;
}

TEST(Attention, AWindowCostsThePairsThatItLeaves) {
  for (const std::int64_t seq : {512, 4096, 65536})
    for (const std::int64_t window : {64, 300}) {
      double pairs = 0;
      for (std::int64_t i = 0; i < seq; ++i) pairs += static_cast<double>(std::min(i + 1, window));
      EXPECT_NEAR(attention_flops(seq, window) / (4 * 16 * pairs), 1, 0.01) << seq << ", " << window;
      const double both = 2 * pairs - static_cast<double>(seq);  // in both directions, the own once
      EXPECT_NEAR(attention_flops(seq, window, false) / (4 * 16 * both), 1, 0.01) << seq << ", " << window;
    }
  EXPECT_EQ(attention_flops(512, 512), attention_flops(512, 0));
  EXPECT_EQ(attention_flops(512, 9999), attention_flops(512, 0));
  EXPECT_NEAR(attention_flops(65536, 1024) / attention_flops(32768, 1024), 2, 0.05);
}

// Two key heads with two values each, 8 and 16 wide, over 128 positions in chunks of 64: of each value head
// and position three products with a state, and one and a half with others of the chunk; of each key head
// two.
TEST(DeltaRule, CountsItsProducts) {
  const Attr attrs[] = {{.i = 64}};
  const Dim b{"batch", 1}, s{"seq", 128};
  const Dim q[] = {b, s, {"heads", 2}, {"key_dim", 8}}, v[] = {b, s, {"heads", 4}, {"value_dim", 16}};
  constexpr double forward = 128 * (4 * (6 * 8 * 16 + 3 * 64 * 16) + 2 * 4 * 64 * 8);
  const OpRegistry registry;
  const auto cost_of = [&](const char* op, int query, int count) {
    OpShape shape;
    shape.count = count;
    shape.attrs = attrs;
    for (int i = 0; i < 2; ++i) shape.output(query + i, DType::f32, q, 4);
    shape.output(query + 2, DType::f32, v, 4);
    for (int i = 3; i < 5; ++i) shape.output(query + i, DType::f32, v, 3);
    raise(registry.find(op).rule(&shape));
    OpCost cost;
    raise(registry.find(op).cost(&shape, &cost));
    return cost;
  };
  EXPECT_EQ(cost_of("delta_rule", 0, 8).flops, forward);
  const OpCost back = cost_of("delta_rule_grad", 1, 12);
  EXPECT_EQ(back.flops - back.repeated, 2 * forward);
  EXPECT_EQ(back.repeated, forward);
}

// Runs of 32 positions, shorter than a chunk: of each value head and position two products with a state of 24
// columns and half of one with others of the chunk, and of each key head one. None of it is the model's.
TEST(DeltaRule, CountsWhatRunsAdd) {
  const Attr attrs[] = {{.i = 64}, {.i = 32}, {.i = 0}};
  const Dim b{"batch", 1}, s{"seq", 128};
  const Dim k[] = {b, s, {"heads", 2}, {"key_dim", 8}}, v[] = {b, s, {"heads", 4}, {"value_dim", 16}};
  const OpRegistry registry;
  const auto cost_of = [&](bool back) {
    OpShape shape;
    shape.count = 8;
    shape.attrs = attrs;
    shape.output(0, DType::f32, k, 4);
    shape.output(1, DType::f32, v, 4);
    for (int i = 2; i < 4; ++i) shape.output(i, DType::f32, v, 3);
    if (back) shape.like(4, 0), shape.like(5, 1);
    raise(registry.find("delta_maps").rule(&shape));
    EXPECT_EQ(shape.operand[7].elements(), 4 * 4 * 8 * (8 + (back ? 2 : 1) * 16));
    OpCost cost;
    raise(registry.find("delta_maps").cost(&shape, &cost));
    EXPECT_EQ(cost.flops, cost.repeated);
    return cost.flops;
  };
  constexpr double keys = 128 * 2 * 2 * 32 * 8, forward = 128 * 4 * 24 * (4 * 8 + 32) + keys;
  EXPECT_EQ(cost_of(false), forward);
  EXPECT_EQ(cost_of(true), forward + 128 * 4 * 16 * (6 * 8 + 3 * 32) + keys);
}

TEST(OpRegistry, KernelsHaveAllThatTheyAreFoundBy) {
  const auto refusal_of = [](const DeviceKernel& kernel) {
    try {
      check_kernel(kernel, "test");
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const auto select = [](const OpShape&) -> Kernel { return nullptr; };
  EXPECT_EQ(refusal_of({"cpu", {"mine", select}}), "");
  EXPECT_EQ(
      refusal_of({"cpu", {"mine", nullptr}}),
      "op plugin 'test': a kernel of op 'mine' without select; each names its device and its op, and has a "
      "function select");
  EXPECT_NE(refusal_of({nullptr, {"mine", select}}).find("of op 'mine' without device"), std::string::npos);
  EXPECT_NE(refusal_of({"cpu", {nullptr, select}}).find("a kernel without op"), std::string::npos);
}

TEST(OpRegistry, RowsArePickedByAnotherOperandThatIsThere) {
  static constexpr OperandDef itself[] = {{.name = "table", .rows_by = 0}},
                              beyond[] = {{.name = "table", .rows_by = 1}},
                              absent[] = {{"numbers", Access::read, true}, {.name = "table", .rows_by = 0}};
  for (const Array<OperandDef> operands :
       {Array<OperandDef>{itself, 1}, Array<OperandDef>{beyond, 1}, Array<OperandDef>{absent, 2}}) {
    OpDef def = exchange({}, operands, {});
    def.exchange = nullptr;
    EXPECT_NE(refusal(def).find("picks rows of 'table'; it must be another one, and neither may be optional"),
              std::string::npos)
        << refusal(def);
  }
}

}  // namespace
}  // namespace prun::test
