// Writing, rewriting and verifying programs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <regex>
#include <sstream>

#include "placement/check_edits.hpp"
#include "program/flops.hpp"
#include "program/passes.hpp"
#include "program/update.hpp"
#include "prun/lowering.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::program_test {
namespace {

std::unique_ptr<Program> empty_program() {
  return std::make_unique<Program>(std::make_shared<OpRegistry>(), Precision{}, ModelContext{2, 4});
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Program, NamesWhatDoesNotFit) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment s = ref.segment("a");
  const Id w = s.weight("w", {{"out", 3}, {"hidden", 5}}, zeros());
  const Id x = s.vector("x", {{"batch", 2}, {"hidden", 6}}, zeros());
  EXPECT_NE(message_of([&] {
              s.op("linear", {x, w, none});
            }).find("'hidden' (6) meets 'hidden' (5)"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              s.op("linaer", {x, w, none});
            }).find("did you mean 'linear'"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              s.op("gelu", {x}, {{"slope", 1.0}});
            }).find("no attribute 'slope'"),
            std::string::npos);
  EXPECT_NE(message_of([&] { s.op("gelu", {none}); }).find("operand 'x' is missing"), std::string::npos);
  EXPECT_NE(message_of([&] {
              s.weight("w", {{"a", 1}}, zeros());
            }).find("two parameters 'w'"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              s.weight("v", {{"a", 1}, {"a", 2}}, zeros());
            }).find("two dimensions named 'a'"),
            std::string::npos);
}

// Passes add ops while they look at one, so nothing moves as the program grows.
TEST(Program, ReferencesStayValidWhileOthersAreAdded) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment s = ref.segment("first");
  const Id x = s.vector("x", {{"hidden", 6}}, ones());
  s.op("gelu", {x});
  const Op* const op = &program->op(0);
  const Value* const value = &program->value(x);
  const SegmentData* const segment = &program->segment(0);
  for (int i = 0; i < 1000; ++i) ref.segment("s" + std::to_string(i)).vector("x", {{"hidden", 6}}, ones());
  for (int i = 0; i < 1000; ++i) s.op("gelu", {x});
  EXPECT_EQ(&program->op(0), op);
  EXPECT_EQ(&program->value(x), value);
  EXPECT_EQ(&program->segment(0), segment);
}

// Segments a, b twice and c, in a chain; `write` has the last say.
std::string carried_refusal(
    const std::function<void(const Segment&, const Segment&, const Segment&)>& write) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment a = ref.segment("a"), b = ref.segment("b", 2), c = ref.segment("c");
  a.outgoing(a.op("gelu", {a.vector("x", {{"hidden", 6}}, ones())}));
  b.outgoing(b.op("add", {b.op("gelu", {b.incoming()}), b.vector("y", {{"hidden", 6}}, ones())}));
  c.outgoing(c.op("gelu", {c.incoming()}));
  return message_of([&] {
    write(a, b, c);
    verify(*program);
    add_backward(*program);
  });
}

TEST(Program, CarriesWhatASegmentMakesOnceForThoseBehindIt) {
  const auto named = [](const Segment& s) { return s.op("scale", {s.values().front()}, {{"factor", 2.0}}); };
  EXPECT_EQ(carried_refusal([&](const Segment& a, const Segment& b, const Segment& c) {
              const Id x = a.carry(named(a));
              b.outgoing(b.op("add", {b.info().outgoing, x}));
              c.outgoing(c.op("add", {c.incoming(), x}));
            }),
            "");
  const auto refuses = [&](const char* why, const auto& write) {
    const std::string said = carried_refusal(write);
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  refuses("one in front may carry it", [&](const Segment& a, const Segment&, const Segment& c) {
    c.op("add", {c.incoming(), named(a)});
  });
  refuses("one in front may carry it",
          [&](const Segment& a, const Segment&, const Segment& c) { a.op("gelu", {c.carry(named(c))}); });
  refuses("'b' repeats, so",
          [&](const Segment&, const Segment& b, const Segment&) { b.carry(b.info().outgoing); });
  refuses("can carry only a result of its own",
          [&](const Segment& a, const Segment&, const Segment& c) { c.carry(a.info().outgoing); });
  refuses("is handed on and carried too", [&](const Segment& a, const Segment&, const Segment& c) {
    c.op("add", {c.incoming(), a.carry(a.info().outgoing)});
  });
  refuses("no later segment gives it a gradient",
          [&](const Segment& a, const Segment&, const Segment&) { a.carry(named(a)); });
}

// Three segments in a chain, of which the second repeats; `write` has the last say in it.
std::string replaced_refusal(const std::function<void(const Segment& second, Id x, Id y)>& write) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment a = ref.segment("a"), b = ref.segment("b", 2), c = ref.segment("c");
  a.outgoing(a.op("gelu", {a.vector("x", {{"rows", 3}, {"hidden", 6}}, ones())}));
  const Id y = b.op("gelu", {b.incoming()});
  b.outgoing(b.op("add", {y, b.vector("y", {{"rows", 3}, {"hidden", 6}}, ones())}));
  c.outgoing(c.op("gelu", {c.incoming()}));
  return message_of([&] {
    write(b, b.incoming(), y);
    program->settle_shapes();
    verify(*program);
    add_backward(*program);
  });
}

TEST(Program, GivesWhatReadsAReplacedValueTheShapesThatFollow) {
  const auto wide = [](const Segment& s, Id before, Id x) {
    const Id weight = s.weight("wide", {{"wide", 4}, {"hidden", 6}}, ones());
    return s.insert(FunctionKind::forward, before, "linear", {x, weight}, 1)[0];
  };
  EXPECT_EQ(replaced_refusal([&](const Segment& s, Id x, Id y) {
              const std::vector<Id> ops = s.operations(FunctionKind::forward);
              const Id gain = s.program().op(ops.back()).operands[1];
              s.program().erase(ops.back());
              s.program().replace_value(x, wide(s, ops.front(), x));
              EXPECT_EQ(s.program().value(y).dims[1].extent, 4);
              const Id back = s.op("linear", {y, s.weight("back", {{"hidden", 6}, {"wide", 4}}, ones())});
              s.outgoing(s.op("add", {back, gain}));
            }),
            "");
  const auto refuses = [&](const char* why, const auto& write) {
    const std::string said = replaced_refusal(write);
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  refuses("op 'add'", [&](const Segment& s, Id x, Id) {
    s.program().replace_value(x, wide(s, s.operations(FunctionKind::forward).front(), x));
  });
  refuses("no op behind the one that writes",
          [&](const Segment& s, Id x, Id) { s.program().replace_value(x, s.op("gelu", {x})); });
  refuses("no op of a segment's forward writes that",
          [&](const Segment& s, Id x, Id) { s.program().replace_value(x, x); });
  refuses("the next segment takes another shape or type", [](const Segment& s, Id, Id) {
    const Id out = s.info().outgoing;
    s.program().replace_value(out, s.op("cast", {out}, {{"from", 1}, {"to", 2}}));
  });
  refuses("no value", [](const Segment& s, Id x, Id) { s.program().replace_value(none, s.op("gelu", {x})); });
  refuses("the next segment takes another shape or type", [&](const Segment& s, Id, Id) {
    const Id out = s.info().outgoing;
    s.program().replace_value(out, wide(s, none, out));
  });
}

TEST(Program, VerifyFindsBrokenPrograms) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment a = ref.segment("a"), b = ref.segment("b");
  const Id x = a.vector("x", {{"hidden", 6}}, zeros());
  const Id y = a.op("gelu", {x});
  a.op("gelu", {y});
  EXPECT_NE(message_of([&] { verify(*program); }).find("nothing is handed on"), std::string::npos);
  a.outgoing(y);
  EXPECT_NE(message_of([&] { verify(*program); }).find("nothing comes in"), std::string::npos);
  b.op("gelu", {b.incoming()});
  EXPECT_NO_THROW(verify(*program));
  // The writer of what is handed on gone; and with a reader left.
  Program unread = *program;
  unread.replace_operand(unread.segment(a.id()).ops(FunctionKind::forward)[1], 0, x);
  unread.erase_op(unread.segment(a.id()).ops(FunctionKind::forward)[0]);
  EXPECT_NE(message_of([&] { verify(unread); }).find("is handed on, but no op writes it"), std::string::npos);
  ref.erase(a.operations(FunctionKind::forward)[0]);
  EXPECT_NE(message_of([&] { verify(*program); }).find("read before anything wrote it"), std::string::npos);
}

TEST(Program, AParameterThatNothingUsesIsNamed) {
  const auto program = empty_program();
  const Segment s = ProgramRef(&program_api(), program.get()).segment("a");
  s.op("gelu", {s.vector("x", {{"hidden", 6}}, zeros())});
  EXPECT_NO_THROW(verify(*program));
  s.vector("spare", {{"hidden", 6}}, zeros());
  EXPECT_EQ(message_of([&] { verify(*program); }),
            "program: segment 'a', parameter 'spare' is used by no op; use it or leave it out");
}

TEST(Program, ASumThatNothingReadsIsNamed) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment s = ref.segment("a");
  s.op("gelu", {s.vector("x", {{"hidden", 6}}, zeros())});
  const Id sum = ref.runtime("sum"), step = program->step_segment();
  program->add_op(step, FunctionKind::begin, Part::input, "zero", {sum}, {});
  program->add_op(step, FunctionKind::finish, Part::input, "accumulate", {ref.runtime("lr"), sum}, {});
  EXPECT_EQ(message_of([&] { verify(*program); }),
            "program: segment 'step', the sum 'sum' is cleared and added to, but read by no op");
  program->add_op(step, FunctionKind::finish, Part::input, "accumulate", {sum, ref.runtime("all")}, {});
  EXPECT_NO_THROW(verify(*program));
}

TEST(Program, StrategiesCanRewrite) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment s = ref.segment("a");
  const Id x = s.vector("x", {{"hidden", 6}}, zeros());
  const Id y = s.op("gelu", {x});
  const Id z = s.op("scale", {y}, {{"factor", 2.0}});
  s.outgoing(z);
  const std::vector<Id> ops = s.operations(FunctionKind::forward);
  EXPECT_EQ(ref.attr(ops[1], "factor"), 2.0);
  ref.set_attr(ops[1], "factor", 3.0);
  EXPECT_EQ(ref.attr(ops[1], "factor"), 3.0);
  const Id extra = s.insert(FunctionKind::forward, ops[1], "scale", {y}, 1, {{"factor", 5.0}})[0];
  ref.replace_operand(ops[1], 0, extra);
  verify(*program);
  EXPECT_EQ(s.operations(FunctionKind::forward).size(), 3u);
  EXPECT_EQ(ref.op(s.operations(FunctionKind::forward)[1]).kind.view(), "scale");
  EXPECT_NE(message_of([&] { ref.replace_kind(ops[0], "add"); }).find("takes 3 operands, not 2"),
            std::string::npos);
}

TEST(Program, OneOpTakesThePlaceOfTwo) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment s = ref.segment("a");
  const Id x = s.vector("x", {{"hidden", 6}}, zeros()), narrow = s.vector("y", {{"hidden", 5}}, zeros());
  const Id y = s.op("gelu", {x}), z = s.op("scale", {y}, {{"factor", 2.0}});
  s.outgoing(z);
  s.op("gelu", {narrow});
  const std::vector<Id> ops = s.operations(FunctionKind::forward);
  const Uses before(s);
  EXPECT_EQ(before.readers(y), std::vector<Id>{ops[1]});
  EXPECT_FALSE(before.handed_on(y));
  EXPECT_TRUE(before.handed_on(z));
  EXPECT_TRUE(before.readers(z).empty());
  EXPECT_NE(message_of([&] {
              ref.replace_op(ops[1], "gelu", {narrow, z});
            }).find("wrong shape"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              ref.replace_op(ops[1], "add", {x, z});
            }).find("takes 3 operands, not 2"),
            std::string::npos);
  EXPECT_EQ(ref.op(ops[1]).kind.view(), "scale");
  ref.replace_op(ops[1], "add", {x, x, z});
  EXPECT_EQ(ref.op(ops[1]).kind.view(), "add");
  ref.erase(ops[0]);
  EXPECT_NO_THROW(verify(*program));
  EXPECT_EQ(Uses(s).readers(x), (std::vector<Id>{ops[1], ops[1]}));
}

// On a placed program nothing puts exchanges in any more.
TEST(Program, AnOpInThePlaceOfAnotherMustFindItsOperandsAsItNeedsThem) {
  const std::string tensor = "[mesh]\ntp = 2\n[[strategy]]\nplugin = \"tensor\"\n";
  const Assembly assembly(tiny_recipe({}, tensor), plugins());
  Program program = assembly.unlowered();
  const std::vector<Id> ops = program.segment(2).ops(FunctionKind::forward);
  const auto find = [&](std::string_view kind) {
    return *std::find_if(ops.begin(), ops.end(), [&](Id op) { return program.op(op).kind() == kind; });
  };
  const Id gelu = find("gelu"), reduce = find("all_reduce"), norm = find("layernorm");
  const std::vector<Id> operands = program.op(gelu).operands;  // both split along ffn
  const auto replace = [&](Id op, const char* kind, std::vector<Id> on) {
    return message_of([&] {
      Program edited = program;
      const EditCheck check(edited);
      edited.replace_op(op, kind, std::move(on), {});
      edited.note_edit(op);
      check.run();
    });
  };
  const std::vector<Id> statistics(program.op(norm).operands.end() - 2, program.op(norm).operands.end());
  Id bias = none;
  for (Id id : program.parameters())
    if (program.value(id).name == "up.bias") bias = id;
  EXPECT_NE(replace(gelu, "layernorm", {operands[0], bias, bias, operands[1], statistics[0], statistics[1]})
                .find("is sharded on 'ffn', and the op needs that dimension whole"),
            std::string::npos);
  // A partial sum into an op that is not linear.
  EXPECT_NE(replace(reduce, "gelu", program.op(reduce).operands)
                .find("is a partial sum, and the op needs it complete"),
            std::string::npos);
  EXPECT_EQ(replace(gelu, "scale", operands), "");
}

TEST(Program, BackwardSumsWhatFlowsTogether) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment s = ref.segment("a");
  const Id x = s.vector("x", {{"hidden", 6}}, zeros());
  s.outgoing(s.op("add", {x, s.op("gelu", {x})}));
  add_backward(*program);
  verify(*program);
  const std::string text = to_text(*program);
  EXPECT_NE(text.find("gelu_grad"), std::string::npos);
  EXPECT_NE(text.find("accumulate"), std::string::npos);
  EXPECT_NE(text.find(" = add(a=@x, b=%"), std::string::npos) << text;
  split_backward(*program);
  verify(*program);
  EXPECT_EQ(program->segment(1).ops(FunctionKind::backward_weight).size(), 1u);
}

TEST(Program, OneOpGivesTheGradientsOfThoseOperandsThatAreTrained) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment s = ref.segment("a");
  const Dim b{"batch", 2}, t{"seq", 4}, h{"heads", 1}, d{"head_dim", 3};
  const Id q = s.vector("q", {b, t, h, {"queries", 2}, d}, zeros()), k = s.vector("k", {b, t, h, d}, zeros()),
           v = s.vector("v", {b, t, h, d}, zeros());
  ref.set_parameter(k, true, false, 1);
  s.outgoing(s.op("attention", {q, k, v}));
  add_backward(*program);
  verify(*program);
  EXPECT_NE(program->value(q).gradient, none);
  EXPECT_EQ(program->value(k).gradient, none);
  EXPECT_NE(program->value(v).gradient, none);
}

TEST(Program, AParameterThatNothingUpdatesIsNamed) {
  const Assembly assembly(tiny_recipe({}), plugins());
  Program program = assembly.unlowered();
  EXPECT_NO_THROW(check_updates(program));
  const Id parameter = program.parameters().front();
  const std::vector<Id> ops = update_of(program, parameter).ops;
  ASSERT_EQ(ops.size(), 1u);
  program.erase_op(ops.front());
  EXPECT_NE(message_of([&] { check_updates(program); }).find("no op of its update changes it"),
            std::string::npos);
}

// Keeps what a test says, and updates nothing.
class NamedStates final : public OptimizerInterface {
 public:
  explicit NamedStates(const std::vector<std::string>& names) : texts_(names.begin(), names.end()) {
    for (const Text& text : texts_) {
      specs_.emplace_back();
      specs_.back().name = text;
    }
  }
  Status states_of(const ParameterShape&, Array<StateSpec>* states) noexcept override {
    *states = {specs_.data(), specs_.size()};
    return {};
  }
  Status states(Array<Text>* names) noexcept override {
    *names = {texts_.data(), texts_.size()};
    return {};
  }
  Status update(const ProgramApi*, void*, Id, const UpdateContext&) noexcept override { return {}; }

 private:
  std::vector<Text> texts_;
  std::vector<StateSpec> specs_;
};

TEST(Program, StatesHaveNamesOfTheirOwn) {
  const auto said_of = [](const std::vector<std::string>& names) {
    const auto program = empty_program();
    const Segment s = ProgramRef(&program_api(), program.get()).segment("a");
    s.outgoing(s.op("gelu", {s.vector("x", {{"hidden", 6}}, zeros())}));
    add_backward(*program);
    NamedStates optimizer(names);
    return message_of([&] { add_update(*program, one_optimizer(optimizer)); });
  };
  EXPECT_EQ(said_of({"m", "v_2"}), "");
  for (const char* taken : {"master", "gradient"})
    EXPECT_NE(said_of({taken}).find("each parameter has one already"), std::string::npos) << taken;
  EXPECT_NE(said_of({"m", "m"}).find("each parameter has one already"), std::string::npos);
  for (const char* wrong : {"", "../m", "a b"})
    EXPECT_NE(said_of({wrong}).find("names are of letters, digits and _"), std::string::npos) << wrong;
}

// Returns what refuses a state that a strategy asks for, or the optimizer, which keeps `m`.
std::string state_refusal(const std::function<void(ProgramRef program)>& ask) {
  const auto program = empty_program();
  const ProgramRef ref(&program_api(), program.get());
  const Segment s = ref.segment("a");
  const Id x = s.vector("x", {{"hidden", 6}}, zeros());
  s.outgoing(s.op("gelu", {x}));
  const std::vector<std::string> own = {"m"};
  NamedStates optimizer(own);
  const std::string refusal = message_of([&] {
    ask(ref);
    add_backward(*program);
    add_update(*program, one_optimizer(optimizer));
  });
  if (!refusal.empty()) return refusal;
  EXPECT_EQ(program->value(x).states.size(), 2u);
  const std::vector<Id> ops = s.operations(FunctionKind::update);
  EXPECT_EQ(ops.size(), 1u);
  const OpInfo op = ref.op(ops.at(0));
  EXPECT_EQ(op.kind.view(), "average_weights");
  EXPECT_EQ(op.operands[0], x);
  EXPECT_EQ(op.operands[2], program->value(x).states.at(1));
  EXPECT_EQ(ref.attr(ops.at(0), "decay"), 0.5);
  EXPECT_EQ(program->value(program->value(x).states.at(1)).name, "x.mean");
  return "";
}

TEST(Program, AStrategyMayAskForOneMoreStateOfEachParameter) {
  const AttrValue half{"decay", 0.5};
  const auto ask = [&](const char* name, const char* op) {
    return [&half, name, op](ProgramRef program) { program.optimizer_state({name, op, {&half, 1}}); };
  };
  EXPECT_EQ(state_refusal(ask("mean", "average_weights")), "");
  EXPECT_NE(state_refusal(ask("m", "average_weights")).find("each parameter has one already"),
            std::string::npos);
  EXPECT_NE(state_refusal(ask("mean", "gelu")).find("cannot change a state by op 'gelu'"), std::string::npos);
  EXPECT_NE(state_refusal([&](ProgramRef program) {
              ask("mean", "average_weights")(program);
              ask("other", "average_weights")(program);
            }).find("keeps 'mean', and there can be one"),
            std::string::npos);
  const Assembly assembly(tiny_recipe(), plugins());
  Program program = assembly.unlowered();
  EXPECT_NE(message_of([&] {
              ask("mean", "average_weights")(ProgramRef(&program_api(), &program));
            }).find("ask for it in phase model"),
            std::string::npos);
}

TEST(Program, ListsTheCostOfEachLayer) {
  const Assembly assembly(tiny_recipe({"model.layers=3"}), plugins());
  Program program = assembly.unlowered();
  const std::vector<double> flops = ProgramRef(&program_api(), &program).layer_flops();
  ASSERT_EQ(flops.size(), 5u) << "embedding, three layers, head";
  EXPECT_GT(flops[1], 0);
  EXPECT_EQ(flops[1], flops[2]);
  EXPECT_EQ(flops[1], flops[3]);
  EXPECT_DOUBLE_EQ(std::accumulate(flops.begin(), flops.end(), 0.0), model_flops(program));
}

TEST(Program, AValueThatNobodyCanCountIsRefused) {
  const auto program = empty_program();
  const Segment s = ProgramRef(&program_api(), program.get()).segment("a");
  EXPECT_NE(message_of([&] {
              s.weight("w", {{"out", std::int64_t{1} << 40}, {"hidden", std::int64_t{1} << 40}}, zeros());
            }).find("has more than 2^52 elements"),
            std::string::npos);
}

TEST(Program, FrozenParametersHaveNoGradient) {
  const Recipe recipe = tiny_recipe({"optimizer.group.0.match=block.qkv.*", "optimizer.group.0.frozen=true"});
  const Assembly assembly(recipe, plugins());
  for (Id id : assembly.program().parameters()) {
    const Value& value = assembly.program().value(id);
    const bool frozen = value.name.rfind("qkv.", 0) == 0;
    EXPECT_EQ(value.frozen, frozen) << value.name;
    EXPECT_EQ(value.gradient == none, frozen) << value.name;
  }
}

// ---------------------------------------------------------------- ops of the core's own passes

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(BaseOps, AreDefinedAndNamedOnce) {
  const std::filesystem::path core = std::filesystem::path(PRUN_SOURCE_DIR) / "core";
  const std::string names = text_of(core / "ops" / "base_ops.hpp");
  const OpRegistry registry;
  int found = 0;
  const std::regex name("const char\\* (\\w+) = \"(\\w+)\";");
  for (std::sregex_iterator at(names.begin(), names.end(), name), end; at != end; ++at, ++found) {
    EXPECT_EQ((*at)[1], (*at)[2]);
    EXPECT_TRUE(registry.contains((*at)[2].str())) << (*at)[2];
  }
  EXPECT_GE(found, 40);
  const std::regex literal("(Part::\\w+|op\\.part),\\s*\"|kind\\(\\)\\s*[!=]=\\s*\"|\\.is\\(\"");
  EXPECT_TRUE(std::regex_search("add_op(segment, kind, Part::input, \"copy\", {})", literal));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(core)) {
    const std::string file = entry.path().generic_string();
    if (!file.ends_with("pp") || file.find("/core/include/") != std::string::npos) continue;
    EXPECT_FALSE(std::regex_search(text_of(entry.path()), literal))
        << file << " names an op: ops/base_ops.hpp";
  }
}

}  // namespace
}  // namespace prun::test::program_test
