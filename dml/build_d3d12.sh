#!/usr/bin/env bash
# In the root: d3d12.dll for Windows, out of the vkd3d 1.14 in Debian's wine source package.
#
# Wine's own d3d12.dll is that vkd3d built without its reader of DXIL, the compiled shaders that
# DirectML brings. So its sources are cross-compiled again, with that reader on, and a small shim
# exports what DirectML and ONNX Runtime call.
set -euo pipefail
build=/opt/dml/build
rm -rf "$build"
mkdir -p "$build/src" "$build/out/gen/wine" "$build/out/gen/vulkan"
cd "$build"
apt-get update -q
apt-get source -q --download-only wine || true # complains of its sandbox, and has the file
tar xf wine_*.orig.tar.xz -C src --strip-components=1
src=$build/src
export vkd3d=$src/libs/vkd3d
cd out

# DirectML asks for the vendor's metacommands. "There are none" it takes; E_NOTIMPL it does not.
perl -0pi -e 's/(d3d12_device_EnumerateMetaCommands\(ID3D12Device9 \*iface,.*?)return E_NOTIMPL;/$1if (num_meta_commands) *num_meta_commands = 0;\n    return S_OK;/s' \
  "$vkd3d/libs/vkd3d/device.c"

# Headers: from Wine's IDL files, from Vulkan, and those that vkd3d takes from Wine.
for idl in d3d12 d3d12sdklayers d3d12shader d3dcommon dxgi dxgi1_2 dxgi1_3 dxgi1_4 dxgi1_5 \
  dxgi1_6 dxgicommon dxgitype dxgiformat; do
  x86_64-w64-mingw32-widl -D__WIDL_DEFAULT_CALLCONV=__stdcall -I"$src/include" \
    -h -o "gen/$idl.h" "$src/include/$idl.idl"
done
cp "$src"/include/wine/{list,rbtree}.h gen/wine/
cp "$src"/include/d3dx9*.h gen/
: >gen/d3dx9math.inl
cp /usr/include/vulkan/{vulkan,vulkan_core,vulkan_win32,vk_platform}.h gen/vulkan/
cp -r /usr/include/vk_video gen/
echo '#include <vulkan/vulkan.h>' >gen/wine/vulkan.h
# Wine's headers name their unions with macros that mingw's headers do not have.
{
  cat "$vkd3d/config.h"
  echo '#define __C89_NAMELESS'
  for k in "" 1 2 3 4 5 6 7 8; do
    echo "#define __C89_NAMELESSUNIONNAME$k u$k"
    echo "#define __C89_NAMELESSSTRUCTNAME$k s$k"
  done
  echo '#define DECL_WINELIB_TYPE_AW(x)'
  echo '#define WINELIB_NAME_AW(x) x##A'
} >hand.h

for grammar in hlsl preproc; do
  bison -d -o "gen/$grammar.tab.c" "$vkd3d/libs/vkd3d-shader/$grammar.y"
  flex -o "gen/$grammar.yy.c" "$vkd3d/libs/vkd3d-shader/$grammar.l"
done

export flags="-O2 -std=gnu17 -w -D_WIN32_WINNT=0x0A00 -include hand.h -Igen -I$vkd3d
  -I$vkd3d/include -I$vkd3d/include/private -I$vkd3d/libs/vkd3d -I$vkd3d/libs/vkd3d-shader
  -DLIBVKD3D_SOURCE -DLIBVKD3D_SHADER_SOURCE -DLIBVKD3D_UTILS_SOURCE
  -DWINE_NO_NAMELESS_EXTENSION -DVK_NO_PROTOTYPES -DVKD3D_SHADER_UNSUPPORTED_DXIL"
compile() {
  # shellcheck disable=SC2086  # flags are words
  x86_64-w64-mingw32-gcc $flags -c -o "$(echo "${1#"$vkd3d"/}" | tr / _).o" "$1"
}
export -f compile
{
  # What the Makefile of Wine's copy compiles, and the two generated front ends.
  grep -oE 'libs/[a-z0-9_/-]+\.c' "$vkd3d/Makefile.in" | sed "s#^#$vkd3d/#"
  printf 'gen/%s.c\n' hlsl.tab hlsl.yy preproc.tab preproc.yy
} | xargs -P "$(nproc)" -I{} bash -ec 'compile {}'
compile /opt/dml/d3d12_shim.c
x86_64-w64-mingw32-gcc -s -shared -static-libgcc -o /opt/dml/d3d12.dll.new ./*.o \
  /opt/dml/d3d12.def -lole32 -luuid -ldxguid
mv /opt/dml/d3d12.dll.new /opt/dml/d3d12.dll
rm -rf "$build"
