// Passes every call into a plugin: it holds the plugin's object, behind the same interface. An error that the
// plugin returns is reported under its name, and so is an end of the process that it causes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace prun {

// ------------------------------------------------------------------- in plugin
// Tracks which plugin's code a thread runs. A plugin that ends the process is named: with exit(), by a
// signal, or by an uncaught exception.

inline constexpr const char* in_apply = "in apply()";  // place of a strategy's call
inline constexpr const char* in_open = "in open()";    // place of a data plugin's call

class InPlugin {
 public:
  // Takes texts such as "strategy plugin 'zero'", "in apply()"; both must outlive it.
  InPlugin(const char* plugin, const char* where) noexcept;
  ~InPlugin();
  InPlugin(const InPlugin&) = delete;
  InPlugin& operator=(const InPlugin&) = delete;

  // Returns the call of this thread, or null if it runs no plugin's code.
  static const InPlugin* current() noexcept;
  const char* plugin() const noexcept { return plugin_; }
  const char* where() const noexcept { return where_; }
  // Returns a number that no other call of the process has; depth_of() it is how many calls the thread is in.
  std::uint64_t number() const noexcept { return number_; }

 private:
  const char* plugin_;
  const char* where_;
  const InPlugin* before_;
  const std::uint64_t number_;
};

// Returns the depth: the outermost call has depth 1. Depths of 255 and more are all 255.
constexpr std::size_t depth_of(std::uint64_t number) { return number & 0xff; }

// Returns the innermost calls into plugins that threads are in, by place: their numbers, or 0. With more than
// 256 threads, some have no place.
std::vector<std::uint64_t> calls_into_plugins();

struct PluginAndWhere {
  std::string plugin, where;
};
// Describes the call with that number; returns nothing if it has ended, or another is within it.
std::optional<PluginAndWhere> call_into_plugin(std::size_t place, std::uint64_t number);

// Ensures, while it lives, that the process cannot end in a plugin's code without a sentence on stderr and an
// exit code that says so. A process has one, in main().
class UntimelyEndWatch {
 public:
  UntimelyEndWatch();
  ~UntimelyEndWatch();
  UntimelyEndWatch(const UntimelyEndWatch&) = delete;
  UntimelyEndWatch& operator=(const UntimelyEndWatch&) = delete;
};

// ------------------------------------------------------------------- guarded plugin

// Puts "strategy plugin 'zero': " before the message of a Status.
Status under_name(const std::string& plugin, const Status& status) noexcept;

template <class Interface>
class GuardedCalls {
 public:
  GuardedCalls(std::string plugin, std::shared_ptr<Interface> object)
      : plugin_(std::move(plugin)), object_(std::move(object)) {}
  ~GuardedCalls() {
    const InPlugin here(plugin_.c_str(), "while its object is destroyed");
    object_.reset();
  }
  GuardedCalls(const GuardedCalls&) = delete;
  GuardedCalls& operator=(const GuardedCalls&) = delete;

 protected:
  template <class... Parameters, class... Arguments>
  Status call(const char* where, Status (Interface::*function)(Parameters...) noexcept,
              const Arguments&... arguments) const noexcept {
    const InPlugin here(plugin_.c_str(), where);
    Status status = (object_.get()->*function)(arguments...);
    if (!status.ok()) [[unlikely]]
      status = under_name(plugin_, status);
    return status;
  }
  Interface& object() const { return *object_; }
  const std::string& plugin() const { return plugin_; }

 private:
  std::string plugin_;
  std::shared_ptr<Interface> object_;
};

template <class Interface>
class GuardedPlugin;

template <>
class GuardedPlugin<ModelInterface> final : public ModelInterface, private GuardedCalls<ModelInterface> {
  using I = ModelInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status build(const ModelContext& context, const ProgramApi* api, void* program) noexcept override {
    return call("in build()", &I::build, context, api, program);
  }
  Status write_config(const ModelContext& context, const ConfigWriterApi* config) noexcept override {
    return call("in write_config()", &I::write_config, context, config);
  }
  Status foreign_weights(ForeignWeightsView* weights) noexcept override {
    return call("in foreign_weights()", &I::foreign_weights, weights);
  }
};

template <>
class GuardedPlugin<StrategyInterface> final : public StrategyInterface,
                                               private GuardedCalls<StrategyInterface> {
  using I = StrategyInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status apply(Phase phase, const ProgramApi* api, void* program) noexcept override {
    return call(in_apply, &I::apply, phase, api, program);
  }
  Status check(const OptionsApi* recipe, const ProblemsApi* problems) noexcept override {
    return call("in check()", &I::check, recipe, problems);
  }
};

template <>
class GuardedPlugin<OptimizerInterface> final : public OptimizerInterface,
                                                private GuardedCalls<OptimizerInterface> {
  using I = OptimizerInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status states(Array<Text>* names) noexcept override { return call("in states()", &I::states, names); }
  Status update(const ProgramApi* api, void* program, Id segment,
                const UpdateContext& context) noexcept override {
    return call("in update()", &I::update, api, program, segment, context);
  }
  Status states_of(const ParameterShape& parameter, Array<StateSpec>* states) noexcept override {
    return call("in states_of()", &I::states_of, parameter, states);
  }
};

template <>
class GuardedPlugin<DataInterface> final : public DataInterface, private GuardedCalls<DataInterface> {
  using I = DataInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status open(std::int64_t seq, DataInfo* info) noexcept override {
    return call(in_open, &I::open, seq, info);
  }
  Status read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) noexcept override {
    return call("in read()", &I::read, index, tokens, targets);
  }
  Status roles(std::int64_t index, std::uint8_t* roles) noexcept override {
    return call("in roles()", &I::roles, index, roles);
  }
};

template <>
class GuardedPlugin<ObserverInterface> final : public ObserverInterface,
                                               private GuardedCalls<ObserverInterface> {
  using I = ObserverInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status start(const RunInfo& info) noexcept override { return call("in start()", &I::start, info); }
  Status step(const StepInfo& info) noexcept override { return call("in step()", &I::step, info); }
  Status evaluation(const EvaluationInfo& info) noexcept override {
    return call("in evaluation()", &I::evaluation, info);
  }
  Status event(EventKind kind, Text message) noexcept override {
    return call("in event()", &I::event, kind, message);
  }
  Status finish(const FinishInfo& info) noexcept override { return call("in finish()", &I::finish, info); }
};

template <>
class GuardedPlugin<DeviceInterface> final : public DeviceInterface, private GuardedCalls<DeviceInterface> {
  using I = DeviceInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status info(DeviceInfo* info) noexcept override { return call("in info()", &I::info, info); }
  Status allocate(Space space, std::int64_t bytes, void** memory) noexcept override {
    return call("in allocate()", &I::allocate, space, bytes, memory);
  }
  Status release(Space space, void* memory, std::int64_t bytes) noexcept override {
    return call("in release()", &I::release, space, memory, bytes);
  }
  Status upload(void* to, const void* from, std::int64_t bytes) noexcept override {
    return call("in upload()", &I::upload, to, from, bytes);
  }
  Status download(void* to, const void* from, std::int64_t bytes) noexcept override {
    return call("in download()", &I::download, to, from, bytes);
  }
  Status clear(void* memory, std::int64_t bytes) noexcept override {
    return call("in clear()", &I::clear, memory, bytes);
  }
  Status memory_in_use(std::int64_t* bytes) noexcept override {
    return call("in memory_in_use()", &I::memory_in_use, bytes);
  }
  const KernelDef* kernel(Text op) noexcept override {
    const InPlugin here(plugin().c_str(), "in kernel()");
    return object().kernel(op);
  }
  Status lower(const ProgramApi* api, void* program) noexcept override {
    return call("in lower()", &I::lower, api, program);
  }
  Status create_queue(Text name, bool workers, Queue* queue) noexcept override {
    return call("in create_queue()", &I::create_queue, name, workers, queue);
  }
  Status destroy_queue(Queue queue) noexcept override {
    return call("in destroy_queue()", &I::destroy_queue, queue);
  }
  Status make_current() noexcept override { return call("in make_current()", &I::make_current); }
  Status attach(Queue queue) noexcept override { return call("in attach()", &I::attach, queue); }
  Status bind(Queue queue, const Launch* launches, std::int64_t count, BoundWork* work) noexcept override {
    return call("in bind()", &I::bind, queue, launches, count, work);
  }
  Status run(Queue queue, BoundWork work) noexcept override { return call("in run()", &I::run, queue, work); }
  Status choices(Text* lines) noexcept override { return call("in choices()", &I::choices, lines); }
  Status prefer(Text lines) noexcept override { return call("in prefer()", &I::prefer, lines); }
  Status examine(Text* lines) noexcept override { return call("in examine()", &I::examine, lines); }
  Status stream(Queue queue, void** stream) noexcept override {
    return call("in stream()", &I::stream, queue, stream);
  }
  Status create_event(QueueEvent* event) noexcept override {
    return call("in create_event()", &I::create_event, event);
  }
  Status destroy_event(QueueEvent event) noexcept override {
    return call("in destroy_event()", &I::destroy_event, event);
  }
  Status record(Queue queue, QueueEvent event) noexcept override {
    return call("in record()", &I::record, queue, event);
  }
  Status wait(Queue queue, QueueEvent event) noexcept override {
    return call("in wait()", &I::wait, queue, event);
  }
  Status write_counter(Queue queue, Counter* counter, std::uint64_t value) noexcept override {
    return call("in write_counter()", &I::write_counter, queue, counter, value);
  }
  Status wait_counter(Queue queue, const Counter* counter, std::uint64_t value) noexcept override {
    return call("in wait_counter()", &I::wait_counter, queue, counter, value);
  }
  Status create_stamp(Stamp* stamp) noexcept override {
    return call("in create_stamp()", &I::create_stamp, stamp);
  }
  Status destroy_stamp(Stamp stamp) noexcept override {
    return call("in destroy_stamp()", &I::destroy_stamp, stamp);
  }
  Status stamp(Queue queue, Stamp stamp) noexcept override {
    return call("in stamp()", &I::stamp, queue, stamp);
  }
  Status read(Stamp stamp, double* seconds) noexcept override {
    return call("in read()", &I::read, stamp, seconds);
  }
  Status check(Queue queue) noexcept override { return call("in check()", &I::check, queue); }
  Status waits_for_others(bool copied_by_threads) noexcept override {
    return call("in waits_for_others()", &I::waits_for_others, copied_by_threads);
  }
  Status meter(DeviceMeter* meter) noexcept override { return call("in meter()", &I::meter, meter); }
};

template <>
class GuardedPlugin<OpPluginInterface> final : public OpPluginInterface,
                                               private GuardedCalls<OpPluginInterface> {
  using I = OpPluginInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status ops(Array<OpDef>* ops) noexcept override { return call("in ops()", &I::ops, ops); }
  Status kernels(Array<DeviceKernel>* kernels) noexcept override {
    return call("in kernels()", &I::kernels, kernels);
  }
  Status examples(Array<OpExample>* examples) noexcept override {
    return call("in examples()", &I::examples, examples);
  }
};

template <>
class GuardedPlugin<ScheduleInterface> final : public ScheduleInterface,
                                               private GuardedCalls<ScheduleInterface> {
  using I = ScheduleInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status problem(const ScheduleShape& shape, Text* text) noexcept override {
    return call("in problem()", &I::problem, shape, text);
  }
  Status stage(const ScheduleShape& shape, std::int32_t rank, std::int32_t chunk,
               std::int32_t* stage) noexcept override {
    return call("in stage()", &I::stage, shape, rank, chunk, stage);
  }
  Status order(const ScheduleShape& shape, std::int32_t rank, Array<ScheduleCall>* calls) noexcept override {
    return call("in order()", &I::order, shape, rank, calls);
  }
  Status bubble(const ScheduleShape& shape, Text* formula, double* share) noexcept override {
    return call("in bubble()", &I::bubble, shape, formula, share);
  }
};

template <>
class GuardedPlugin<CommInterface> final : public CommInterface, private GuardedCalls<CommInterface> {
  using I = CommInterface;

 public:
  using GuardedCalls::GuardedCalls;
  Status info(CommInfo* info) noexcept override { return call("in info()", &I::info, info); }
  Status create(const CommGroup& group, Communicator* communicator) noexcept override {
    return call("in create()", &I::create, group, communicator);
  }
  Status destroy(Communicator communicator) noexcept override {
    return call("in destroy()", &I::destroy, communicator);
  }
  Status attach_memory(Communicator communicator, void* base, std::int64_t bytes) noexcept override {
    return call("in attach_memory()", &I::attach_memory, communicator, base, bytes);
  }
  Status detach_memory(Communicator communicator) noexcept override {
    return call("in detach_memory()", &I::detach_memory, communicator);
  }
  Status connect(Communicator communicator, const CommOp* ops, std::int64_t count,
                 void* stream) noexcept override {
    return call("in connect()", &I::connect, communicator, ops, count, stream);
  }
  Status prepare(Communicator communicator, const CommOp* ops, std::int64_t count,
                 void* stream) noexcept override {
    return call("in prepare()", &I::prepare, communicator, ops, count, stream);
  }
  Status start(Communicator communicator, const CommOp* ops, std::int64_t count,
               void* stream) noexcept override {
    return call("in start()", &I::start, communicator, ops, count, stream);
  }
  Status finish(Communicator communicator) noexcept override {
    return call("in finish()", &I::finish, communicator);
  }
  Status abort(Communicator communicator) noexcept override {
    return call("in abort()", &I::abort, communicator);
  }
  Status counters(Communicator communicator, CommCounters* counters) noexcept override {
    return call("in counters()", &I::counters, communicator, counters);
  }
  Status check(Communicator communicator) noexcept override {
    return call("in check()", &I::check, communicator);
  }
  Status needs(const CommOp& op, std::int32_t rank, std::int32_t size, CommNeeds* needs) noexcept override {
    return call("in needs()", &I::needs, op, rank, size, needs);
  }
  Status examine(Text* lines) noexcept override { return call("in examine()", &I::examine, lines); }
};

// ------------------------------------------------------------------- plugin lines
// Takes what plugins log with log_line(), from any thread. It goes to a collector if there is one, otherwise
// to stderr.

// Leaves strategies' lines to other processes. A program is written as often as the planner tries something:
// what a strategy logs in apply() is reported once, and not at all by a process that leaves it to another
// one. So is what data plugins log when they are opened, once to each collector of lines.
void leave_applying_to_others();

// Leaves out, while it lives, what data plugins log when this thread opens them: training opens them once
// more, and reports it.
class OpenedUnsaid {
 public:
  OpenedUnsaid();
  ~OpenedUnsaid();
  OpenedUnsaid(const OpenedUnsaid&) = delete;
  OpenedUnsaid& operator=(const OpenedUnsaid&) = delete;
};

// Returns the calls that a plugin gets when it is loaded.
const HostApi& host_api();

// Collects lines from now on; what is left at the end goes to stderr. There is one at a time.
class PluginLines {
 public:
  PluginLines();
  ~PluginLines();
  PluginLines(const PluginLines&) = delete;
  PluginLines& operator=(const PluginLines&) = delete;

  // Returns the lines since the last call, such as "comm plugin 'ucx': uses shared memory".
  std::vector<std::string> take();
};

}  // namespace prun
