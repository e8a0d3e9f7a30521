// Fills the templates in and writes them as new files.
#include "plugin_check/scaffold.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/durable_file.hpp"
#include "plugin/note.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- scaffold templates
// Holds one small plugin of each kind that does something, for its author to change.

constexpr std::string_view cmake = R"~(
cmake_minimum_required(VERSION 3.25)
project(prun_@KIND@_@NAME@ LANGUAGES CXX)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(prun @SDK@ CONFIG REQUIRED)
prun_add_plugin(@NAME@ KIND @KIND@ SOURCES @NAME@.cpp)
)~";

constexpr std::string_view readme = R"~(
# The @KIND@ plugin `@NAME@` for prun

    cmake -B build -DCMAKE_PREFIX_PATH=<where prun is installed>
    cmake --build build
    P=build/lib/prun/plugins/@EPOCH@
    prun plugins check $P/libprun_@KIND@_@NAME@.so
    prun --plugin-path $P recipe.toml

To have prun find it always, copy it to `~/.local/share/prun/plugins/@EPOCH@/`.
)~";

constexpr std::string_view model = R"~(
// A model of residual MLP blocks: a start for your own.
#include "prun/plugin.hpp"

namespace {

using prun::Dim;
using prun::Id;
using prun::Segment;

class @CLASS@ final : public prun::Model {
 public:
  explicit @CLASS@(const prun::Options& options)
      : layers_(options.integer("layers")),
        hidden_{"hidden", options.integer("hidden")},
        ffn_{"ffn", 4 * hidden_.extent},
        vocab_{"vocab", options.integer("vocab")} {}

  // Describes one microbatch over whole tensors; prun derives the gradients and shards it.
  void build(const prun::ModelContext&, prun::ProgramRef program) override {
    const Segment embedding = program.segment("embedding");
    const Id table = embedding.weight("token", {vocab_, hidden_}, prun::normal(0.02));
    embedding.outgoing(embedding.op("embedding", {embedding.tokens(), table}));

    const Segment block = program.segment("block", layers_);
    const Id x = block.incoming();
    block.outgoing(block.op("add", {x, mlp(block, norm(block, x))}));

    const Segment head = program.segment("head");
    const Id weight = head.weight("weight", {vocab_, hidden_}, prun::normal(0.02));
    head.op("lm_head", {norm(head, head.incoming()), weight, head.targets(), head.runtime("inv_targets"),
                        head.runtime("loss_sum")});
  }

 private:
  Id norm(const Segment& s, Id x) const {
    return s.op("layernorm", {x, s.vector("norm.gain", {hidden_}, prun::ones()),
                              s.vector("norm.bias", {hidden_}, prun::zeros())});
  }

  Id mlp(const Segment& s, Id x) const {
    const Id up = s.op("linear", {x, s.weight("up.weight", {ffn_, hidden_}, prun::normal(0.02)),
                                  s.vector("up.bias", {ffn_}, prun::zeros())});
    return s.op("linear", {s.op("gelu", {up}), s.weight("down.weight", {hidden_, ffn_}, prun::normal(0.02)),
                           s.vector("down.bias", {hidden_}, prun::zeros())});
  }

  std::int64_t layers_;
  Dim hidden_, ffn_, vocab_;
};

}  // namespace

PRUN_PLUGIN(model, @CLASS@, "@NAME@", "0.1.0", "Residual MLP blocks", "",
            "layers | int | 4   | 1..1000    | Number of blocks\n"
            "hidden | int | 128 | 1..65536   | Hidden size, the width of the residual stream\n"
            "vocab  | int | 256 | 2..1048576 | Vocabulary size\n");
)~";

constexpr std::string_view strategy = R"~(
// Freezes the parameters whose names begin with a given text: a start for your own strategy.
#include "prun/plugin.hpp"

namespace {

class @CLASS@ final : public prun::Strategy {
 public:
  explicit @CLASS@(const prun::Options& options) : prefix_(options.text("prefix")) {}

  void apply(prun::Phase, prun::ProgramRef program) override {
    int frozen = 0;
    for (const prun::Segment& segment : program.segments())
      for (const prun::Id id : segment.values()) frozen += freeze(program, id);
    if (frozen == 0)
      prun::throw_error(prun::ErrorCode::bad_input, "no parameter's name begins with '", prefix_, "'");
  }

 private:
  bool freeze(prun::ProgramRef program, prun::Id id) const {
    const prun::ValueInfo value = program.value(id);
    if (value.role != prun::Role::parameter || !value.name.view().starts_with(prefix_)) return false;
    program.set_parameter(id, true, value.decay, value.lr_scale);
    return true;
  }

  std::string prefix_;
};

}  // namespace

// phase=model: it runs on the forward program, before gradients are derived.
PRUN_PLUGIN(strategy, @CLASS@, "@NAME@", "0.1.0", "Freezes parameters by name", "phase=model",
            "prefix | string | token | | Prefix of the names of parameters to freeze\n");
)~";

constexpr std::string_view optimizer = R"~(
// Gradient descent with momentum: a start for your own optimizer.
#include "prun/plugin.hpp"

namespace {

class @CLASS@ final : public prun::Optimizer {
 public:
  explicit @CLASS@(const prun::Options& options)
      : momentum_(options.number("momentum")), weight_decay_(options.number("weight_decay")) {}

  std::vector<std::string> states() override { return {"momentum"}; }

  // Appends the ops that update one parameter; c.states are in the order of states().
  void update(prun::Segment segment, const prun::UpdateContext& c) override {
    const double decay = !c.decay ? 0 : c.weight_decay >= 0 ? c.weight_decay : weight_decay_;
    segment.insert(prun::FunctionKind::update, prun::none, "sgd",
                   {c.parameter, c.master, c.gradient, c.states[0], c.lr, c.clip, c.keep, c.step, c.seed}, 0,
                   {{"momentum", momentum_}, {"weight_decay", decay}, {"lr_scale", c.lr_scale}});
  }

 private:
  double momentum_, weight_decay_;
};

}  // namespace

PRUN_PLUGIN(optimizer, @CLASS@, "@NAME@", "0.1.0", "Gradient descent with momentum", "",
            "momentum     | float | 0.9 | 0..0.999999 | Decay rate of the momentum\n"
            "weight_decay | float | 0   | 0..10       | Decoupled weight decay, on matrices only\n");
)~";

constexpr std::string_view data = R"~(
// Sequences that count upwards, modulo the vocabulary: a start for your own data.
#include "prun/plugin.hpp"

namespace {

class @CLASS@ final : public prun::Data {
 public:
  explicit @CLASS@(const prun::Options& options)
      : samples_(options.integer("samples")), vocab_(options.integer("vocab")) {}

  prun::DataInfo open(std::int64_t seq) override {
    seq_ = seq;
    return {samples_, samples_ * seq, vocab_};
  }

  // The target of a token is the token that follows it.
  void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) override {
    for (std::int64_t i = 0; i < seq_; ++i) {
      tokens[i] = static_cast<std::int32_t>((index + i) % vocab_);
      targets[i] = static_cast<std::int32_t>((index + i + 1) % vocab_);
    }
  }

 private:
  std::int64_t samples_, vocab_, seq_ = 0;
};

}  // namespace

PRUN_PLUGIN(data, @CLASS@, "@NAME@", "0.1.0", "Tokens that count upwards", "",
            "samples | int | 65536 | 1..         | Number of sequences\n"
            "vocab   | int | 256   | 2..16777216 | Vocabulary size; tokens are below it\n");
)~";

constexpr std::string_view observer = R"~(
// Prints the loss every few steps: a start for your own observer.
#include <cstdio>

#include "prun/plugin.hpp"

namespace {

class @CLASS@ final : public prun::Observer {
 public:
  explicit @CLASS@(const prun::Options& options) : every_(options.integer("every")) {}

  void start(const prun::RunInfo& run) override { last_ = run.steps; }

  void step(const prun::StepInfo& info) override {
    if (info.step % every_ != 0 && info.step != last_) return;
    std::fprintf(stderr, "step %lld: loss %.4f\n", static_cast<long long>(info.step), info.loss);
  }

 private:
  std::int64_t every_, last_ = 0;
};

}  // namespace

PRUN_PLUGIN(observer, @CLASS@, "@NAME@", "0.1.0", "Prints the loss", "",
            "every | int | 10 | 1..1000000 | Steps between lines\n");
)~";

constexpr std::string_view op = R"~(
// An op with its gradient and CPU kernels, y = x * x: a start for your own op.
#include "prun/plugin.hpp"

namespace {

using prun::Access;
using prun::OperandDef;

struct Forward {
  static constexpr const char* kind = "@OP@";
  static constexpr const char* help = "y = x * x";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(prun::OpShape& s) { s.like(1, 0); }
  static void gradient(const prun::Gradient& g) { g.input(0, "@OP@_grad", {g.arrived(1), g.operand(0)}); }
};

struct Backward {
  static constexpr const char* kind = "@OP@_grad";
  static constexpr const char* help = "dx = 2 * x * dy";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(prun::OpShape& s) { s.like(2, 0); }
};

constexpr std::int64_t grain = 1024;  // elements: less is not worth another thread

template <class T>
void forward(const prun::KernelArgs& args, const prun::KernelContext& context) {
  const T* x = args.operands[0].as<const T>();
  T* y = args.operands[1].as<T>();
  prun::parallel_ranges(*context.workers, args.operands[0].elements(), grain,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i) y[i] = T(x[i] * x[i]);
                        });
}

template <class T>
void backward(const prun::KernelArgs& args, const prun::KernelContext& context) {
  const T* dy = args.operands[0].as<const T>();
  const T* x = args.operands[1].as<const T>();
  T* dx = args.operands[2].as<T>();
  prun::parallel_ranges(*context.workers, args.operands[0].elements(), grain,
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t i = begin; i < end; ++i) dx[i] = T(2 * x[i] * dy[i]);
                        });
}

// The kernel for an element type; null where there is none.
prun::Kernel select_forward(const prun::OpShape& shape) {
  switch (shape.operand[0].dtype) {
    case prun::DType::f32: return forward<float>;
    case prun::DType::f64: return forward<double>;
    case prun::DType::bf16: return forward<prun::bf16>;
    case prun::DType::f16: return forward<prun::f16>;
    default: return nullptr;
  }
}

prun::Kernel select_backward(const prun::OpShape& shape) {
  switch (shape.operand[0].dtype) {
    case prun::DType::f32: return backward<float>;
    case prun::DType::f64: return backward<double>;
    case prun::DType::bf16: return backward<prun::bf16>;
    case prun::DType::f16: return backward<prun::f16>;
    default: return nullptr;
  }
}

class @CLASS@ final : public prun::OpPlugin {
 public:
  explicit @CLASS@(const prun::Options&) {}

  std::vector<prun::OpDef> ops() override { return {prun::op_def<Forward>(), prun::op_def<Backward>()}; }
  std::vector<prun::DeviceKernel> kernels() override {
    return {{"cpu", {Forward::kind, select_forward, nullptr}},
            {"cpu", {Backward::kind, select_backward, nullptr}}};
  }
  // `prun plugins check` tries the op and its gradient with these.
  std::vector<prun::OpExample> examples() override {
    return {prun::OpExample(Forward::kind).values(0, {{"batch", 2}, {"seq", 16}, {"hidden", 64}})};
  }
};

}  // namespace

PRUN_PLUGIN(op, @CLASS@, "@NAME@", "0.1.0", "The square of every element", "", "");
)~";

constexpr std::string_view schedule = R"~(
// A pipeline schedule in waves: a few microbatches forward and back, then the next few. A start for your own.
#include <algorithm>

#include "prun/plugin.hpp"

namespace {

class @CLASS@ final : public prun::Schedule {
 public:
  explicit @CLASS@(const prun::Options& options)
      : wave_(static_cast<std::int32_t>(options.integer("wave"))) {}

  std::string problem(const prun::ScheduleShape& shape) override {
    return shape.chunks == 1 ? "" : "@NAME@ gives each rank one chunk; set chunks to 1";
  }

  // Rank r holds stage r: that is what stage() says where it is not overridden.
  std::vector<prun::ScheduleCall> order(const prun::ScheduleShape& shape, std::int32_t) override {
    std::vector<prun::ScheduleCall> calls;
    for (std::int32_t begin = 0; begin < shape.microbatches; begin += wave_) {
      const std::int32_t end = std::min(shape.microbatches, begin + wave_);
      for (std::int32_t i = begin; i < end; ++i) calls.push_back({prun::Pass::forward, 0, i});
      for (std::int32_t i = begin; i < end; ++i) calls.push_back({prun::Pass::backward, 0, i});
    }
    return calls;
  }

 private:
  std::int32_t wave_;
};

}  // namespace

// backward=whole: it says Pass::backward; backward=split: backward_input and backward_weight.
PRUN_PLUGIN(schedule, @CLASS@, "@NAME@", "0.1.0", "Waves of microbatches", "backward=whole",
            "wave | int | 2 | 1..1000000 | Microbatches that go forward before any goes backward\n");
)~";

constexpr std::pair<std::string_view, std::string_view> sources[] = {
    {"model", model},      {"strategy", strategy}, {"optimizer", optimizer},
    {"data", data},        {"observer", observer}, {"op", op},
    {"schedule", schedule}};

}  // namespace

std::string_view scaffold_cmake() { return cmake; }
std::string_view scaffold_readme() { return readme; }

std::string_view scaffold_source(std::string_view kind) {
  for (const auto& [name, text] : sources)
    if (name == kind) return text;
  if (kind == "device") return scaffold_device();
  if (kind == "tier") return scaffold_tier();
  if (kind == "comm") return scaffold_comm();
  return "";
}

namespace {

// ------------------------------------------------------------------- scaffold

namespace fs = std::filesystem;

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// Makes "MyNet2Model" of "my-net_2" and "model". A class cannot begin with a digit: "3d" gives
// "Plugin3dModel". The kind at the end keeps the class apart from everything else in the templates.
std::string class_name(std::string_view name, std::string_view kind) {
  std::string result = name.front() >= '0' && name.front() <= '9' ? "Plugin" : "";
  const std::string words = detail::concat(name, '-', kind);
  bool start = true;
  for (const char c : words) {
    const bool separator = c == '-' || c == '_';
    if (!separator) result += start ? upper(c) : c;
    start = separator;
  }
  return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string filled(std::string_view text, std::string_view kind, std::string_view name) {
  std::string result(text.substr(text.find_first_not_of('\n')));
  std::string in_code(name);
  replace_all(in_code, "-", "_");
  replace_all(result, "@KIND@", kind == "tier" ? "device" : kind);
  replace_all(result, "@NAME@", name);
  replace_all(result, "@CLASS@", class_name(name, kind));
  replace_all(result, "@OP@", in_code);
  replace_all(result, "@SDK@", sdk_version.substr(0, sdk_version.rfind('.')));
  replace_all(result, "@EPOCH@", std::to_string(plugin_epoch));
  return result;
}

std::string_view checked_source(std::string_view kind, std::string_view name) {
  const std::string_view source = scaffold_source(kind);
  if (source.empty())
    throw_error(ErrorCode::bad_input, "there is no plugin kind '", kind,
                "' to start from; choose model, strategy, optimizer, data, observer, op, schedule, device, "
                "tier (a device that keeps bytes) or comm");
  if (!is_plugin_word(name))
    throw_error(ErrorCode::bad_input, "'", name,
                "' cannot be a plugin's name: it must have 1 to 64 of a-z, 0-9, '-' and '_' and begin with a "
                "letter or digit");
  return source;
}

void require_absent(const fs::path& path) {
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() != fs::file_type::not_found)
    throw_error(ErrorCode::bad_input, "'", path.string(),
                "' exists already and is left as it is; choose another folder");
}

void write_new(const fs::path& path, std::string_view text) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.is_open()) throw_storage_error("create", path, errno);
  write_fully(file.get(), std::as_bytes(std::span(text)), path);
}

}  // namespace

std::vector<fs::path> write_scaffold(std::string_view kind, std::string_view name, const fs::path& folder) {
  const std::string_view source = checked_source(kind, name);
  const std::pair<fs::path, std::string_view> files[] = {{folder / "CMakeLists.txt", scaffold_cmake()},
                                                         {folder / (std::string(name) + ".cpp"), source},
                                                         {folder / "README.md", scaffold_readme()}};
  for (const auto& [path, text] : files) require_absent(path);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_storage_error("create", folder, error.value());
  std::vector<fs::path> written;
  for (const auto& [path, text] : files) {
    write_new(path, filled(text, kind, name));
    written.push_back(path);
  }
  return written;
}

}  // namespace prun
