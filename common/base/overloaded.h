// Overloaded: combines several lambdas into one visitor for std::visit. A new alternative of a variant must not compile
// until every visit handles it, so do not pass a lambda with an auto parameter that catches the rest.
#pragma once

namespace cairn {

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace cairn
