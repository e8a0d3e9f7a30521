// SPDX-License-Identifier: Apache-2.0
// Defines the plugin ABI: what a plugin library exports, and the macro that makes it.
//
//   PRUN_PLUGIN(model, Gpt, "gpt", "0.1.0", "GPT-2 family of decoders", "",
//               "layers | int | 12 | 1..4096 | Number of transformer blocks\n"
//               "hidden | int | 768 | 1..     | Width of the residual stream\n")
//
// One library holds one plugin and exports one symbol, prun_plugin_v1. What can be known about it without
// running its code (kind, name, versions, options) is kept in an ELF note of owner PRUN. Before the entry is
// called, the note's epoch, ABI tag and layout hash must equal the core's.
#pragma once

#include <array>
#include <atomic>

#include "prun/comm.hpp"
#include "prun/data.hpp"
#include "prun/device.hpp"
#include "prun/lowering.hpp"
#include "prun/model.hpp"
#include "prun/observer.hpp"
#include "prun/op_plugin.hpp"
#include "prun/optimizer.hpp"
#include "prun/schedule.hpp"
#include "prun/strategy.hpp"

namespace prun {

// The epoch is the ABI version: it grows with every change of an interface in these headers.
inline constexpr std::uint32_t plugin_epoch = 10;
inline constexpr std::string_view sdk_version = "0.3.0";

#if defined(__x86_64__)
#define PRUN_ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define PRUN_ARCHITECTURE "aarch64"
#else
#error "prun runs on x86_64 and aarch64"
#endif
// Names the ABI family, not the compiler's version: libraries of one family can be mixed.
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI
inline constexpr std::string_view abi_tag = "linux-" PRUN_ARCHITECTURE "-itanium-libstdcxx11";
#else
#error "prun plugins need libstdc++ with the C++11 ABI"
#endif

namespace detail {

constexpr std::uint64_t hash_text(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

template <class... Types>
constexpr std::uint64_t hash_layout(std::uint64_t hash) {
  ((hash = (hash ^ (sizeof(Types) * 64 + alignof(Types))) * 0x100000001b3u), ...);
  return hash;
}

// Lists the virtual methods in order, so that a method moved or inserted changes the hash.
inline constexpr std::string_view interface_methods =
    "model:build,write_config,foreign_weights;strategy:apply,check;optimizer:states,update,states_of;data:"
    "open,"
    "read,roles;observer:"
    "start,step,evaluation,event,finish;"
    "device:info,allocate,release,upload,download,clear,memory_in_use,kernel,lower,create_queue,"
    "destroy_queue,make_current,attach,bind,run,choices,prefer,examine,stream,create_event,destroy_event,"
    "record,wait,"
    "write_counter,wait_counter,create_stamp,"
    "destroy_stamp,stamp,read,check,waits_for_others,meter;op:ops,kernels,examples;schedule:problem,stage,"
    "order,bubble;"
    "comm:info,create,destroy,attach_memory,detach_memory,connect,prepare,start,finish,abort,counters,check,"
    "needs,examine";

}  // namespace detail

struct PluginDescriptor;

// The entry gets this; it lives as long as the process. It grows at the end only.
struct HostApi {
  std::uint64_t struct_size;
  std::uint32_t epoch;
  void (*log)(const PluginDescriptor* from, Text message);  // any thread may call it
};

inline constexpr std::uint64_t layout_hash = detail::hash_layout<
    Status, Text, Array<Id>, Name, Dim, Attr, Tensor, TensorElements, KernelArgs, KernelContext, Workers,
    OperandShape, OpShape, KernelDef, OperandDef, AttrDef, OpCost, AttrValue, GradientApi, OpExchange,
    SplitApi, OpDef, ValueInfo, OpInfo, SegmentInfo, Sharded, FlatParameter, FlatBuffer, SavedShare,
    ParameterSpec, Lies, KeptState, AxisInfo, ProgramView, ProgramView::Value, ProgramView::Op, StepContext,
    AddedValue, CountedValue, QuantizationCounts, ProgramApi, OptionsApi, ModelContext, UpdateContext,
    Matrices, ParameterShape, StateSpec, DataInfo, RunInfo, StepInfo, DeviceInfo, DeviceMeter, Launch,
    DeviceKernel, OpExample, ScheduleCall, ScheduleShape, CommOp, ExchangeApi, CommGroup, CommInfo, CommNeeds,
    CommCounters, RankMemory, FinishInfo, HostApi, ConfigWriterApi, ForeignTensorView, ForeignWeightsView>(
    detail::hash_text(detail::interface_methods));

// The entry returns this; it is static and never freed. It grows at the end only.
struct PluginDescriptor {
  std::uint64_t magic;
  std::uint64_t struct_size;
  std::uint32_t epoch;
  std::uint32_t reserved;
  std::uint64_t layout;
  Text abi;
  Text kind;
  Text name;
  // Returns the kind's interface (ModelInterface for a model, ...), or null with the reason in `status`.
  void* (*create)(const OptionsApi* options, Status* status) noexcept;
  void (*destroy)(void* object) noexcept;
  // A model reads its options from a config.json with this, before there is an object (prun/foreign.hpp).
  // Null means that it reads none.
  Status (*read_config)(const OptionsApi* config, const ConfigWriterApi* options) noexcept;
};
inline constexpr std::uint64_t descriptor_magic = 0x31305f6e75727000u;

using PluginEntry = const PluginDescriptor* (*)(const HostApi* host);
inline constexpr const char* entry_symbol = "prun_plugin_v1";

// The SDK library defines this; its name carries epoch and ABI family, so that a library built for another
// cannot even be loaded.
extern "C" __attribute__((visibility("default"))) const char prun_sdk_epoch_10_itanium_libstdcxx11[];

namespace detail {

// These keep what this library's entry was given, and what it returned.
inline std::atomic<const HostApi*> host{nullptr};
inline std::atomic<const PluginDescriptor*> self{nullptr};

inline const PluginDescriptor* attach(const HostApi* api, const PluginDescriptor* descriptor) {
  self.store(descriptor);
  host.store(api);
  return descriptor;
}

}  // namespace detail

// Logs a line for the user, under the plugin's name: the run's observers get it at its start or after the
// step, stderr where there is no run. Any thread may call it; it allocates and locks.
template <class... Parts>
void log_line(const Parts&... parts) {
  if (const HostApi* const host = detail::host.load())
    host->log(detail::self.load(), detail::concat(parts...));
}

namespace detail {

template <class Interface, class Adapter>
void* create(const OptionsApi* options, Status* status) noexcept {
  void* object = nullptr;
  *status = guard([&] { object = static_cast<Interface*>(new Adapter(Options(*options))); });
  return object;
}

template <class Interface, class Adapter>
void destroy(void* object) noexcept {
  delete static_cast<Adapter*>(static_cast<Interface*>(object));
}

template <class Author>
Status read_config(const OptionsApi* config, const ConfigWriterApi* options) noexcept {
  return guard([&] {
    ConfigWriter writer(*options);
    Author::read_config(Options(*config), writer);
  });
}

// Returns null for an author that has no such function.
template <class Author>
constexpr decltype(PluginDescriptor::read_config) config_reader() {
  if constexpr (requires { &Author::read_config; })
    return &read_config<Author>;
  else
    return nullptr;
}

constexpr std::array<char, 16> hex(std::uint64_t value) {
  std::array<char, 16> digits{};
  for (std::size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[(value >> (60 - 4 * i)) & 15];
  return digits;
}

constexpr std::size_t note_size(std::initializer_list<std::string_view> pieces) {
  std::size_t size = 0;
  for (std::string_view piece : pieces) size += piece.size();
  return size;
}

// Lays out an ELF note: three words, owner, padded description.
template <std::size_t Size>
struct alignas(4) Note {
  std::uint32_t name_size = 5;
  std::uint32_t description_size = Size;
  std::uint32_t type = 1;
  char name[8] = {'P', 'R', 'U', 'N', 0, 0, 0, 0};
  char description[(Size + 3) / 4 * 4] = {};
};

template <std::size_t Size>
constexpr Note<Size> make_note(std::initializer_list<std::string_view> pieces) {
  Note<Size> note;
  std::size_t at = 0;
  for (std::string_view piece : pieces)
    for (char c : piece) note.description[at++] = c;
  return note;
}

constexpr char digit(std::uint32_t value) { return static_cast<char>('0' + value); }
inline constexpr char epoch_text[] = {digit(plugin_epoch / 10), digit(plugin_epoch % 10), 0};
inline constexpr auto layout_text = hex(layout_hash);

}  // namespace detail
}  // namespace prun

#define PRUN_KIND_model ::prun::ModelInterface, ::prun::ModelAdapter
#define PRUN_KIND_strategy ::prun::StrategyInterface, ::prun::StrategyAdapter
#define PRUN_KIND_optimizer ::prun::OptimizerInterface, ::prun::OptimizerAdapter
#define PRUN_KIND_data ::prun::DataInterface, ::prun::DataAdapter
#define PRUN_KIND_observer ::prun::ObserverInterface, ::prun::ObserverAdapter
#define PRUN_KIND_device ::prun::DeviceInterface, ::prun::DeviceAdapter
#define PRUN_KIND_schedule ::prun::ScheduleInterface, ::prun::ScheduleAdapter
#define PRUN_KIND_comm ::prun::CommInterface, ::prun::CommAdapter
#define PRUN_KIND_op ::prun::OpPluginInterface, ::prun::OpPluginAdapter

// The note is `key=value` lines; everything after the line `options:` is the schema, one option a line.
#define PRUN_NOTE_PIECES(kind, name, version, help, traits, options)                                \
  {                                                                                                 \
    "kind=" #kind "\nname=" name "\nversion=" version "\nhelp=" help "\ntraits=" traits "\nepoch=", \
        std::string_view(::prun::detail::epoch_text, 2), "\nabi=", ::prun::abi_tag,                 \
        "\nlayout=", std::string_view(::prun::detail::layout_text.data(), 16),                      \
        "\nsdk=", ::prun::sdk_version, "\noptions:\n", options                                      \
  }

#define PRUN_PLUGIN(kind, Author, name, version, help, traits, options) \
  PRUN_PLUGIN_AS(kind, PRUN_KIND_##kind, Author, name, version, help, traits, options)

// Expands to the interface and adapter of the kind.
#define PRUN_PLUGIN_AS(kind, pair, ...) PRUN_PLUGIN_WITH(kind, pair, __VA_ARGS__)

#define PRUN_PLUGIN_WITH(kind, Interface, Adapter, Author, name, version, help, traits, options)           \
  namespace {                                                                                              \
  constexpr std::size_t prun_note_size =                                                                   \
      ::prun::detail::note_size(PRUN_NOTE_PIECES(kind, name, version, help, traits, options));             \
  __attribute__((section(".note.prun"), used, aligned(4))) constinit const auto prun_note =                \
      ::prun::detail::make_note<prun_note_size>(                                                           \
          PRUN_NOTE_PIECES(kind, name, version, help, traits, options));                                   \
  __attribute__((used)) const char* const prun_sdk_anchor = ::prun::prun_sdk_epoch_10_itanium_libstdcxx11; \
  }                                                                                                        \
  extern "C" __attribute__((visibility("default"))) const ::prun::PluginDescriptor* prun_plugin_v1(        \
      const ::prun::HostApi* host) {                                                                       \
    static const ::prun::PluginDescriptor descriptor{::prun::descriptor_magic,                             \
                                                     sizeof(::prun::PluginDescriptor),                     \
                                                     ::prun::plugin_epoch,                                 \
                                                     0,                                                    \
                                                     ::prun::layout_hash,                                  \
                                                     ::prun::abi_tag,                                      \
                                                     #kind,                                                \
                                                     name,                                                 \
                                                     &::prun::detail::create<Interface, Adapter<Author>>,  \
                                                     &::prun::detail::destroy<Interface, Adapter<Author>>, \
                                                     ::prun::detail::config_reader<Author>()};             \
    return ::prun::detail::attach(host, &descriptor);                                                      \
  }                                                                                                        \
  static_assert(true, "ends with a semicolon")
