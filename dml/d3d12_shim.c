/* A small d3d12.dll over vkd3d: only what DirectML and ONNX Runtime call.
 *
 * vkd3d is a library without the entry points of Windows' d3d12.dll. These make its instance and
 * device with what an application would otherwise configure, or hand a call straight on.
 */
#define COBJMACROS
#define INITGUID
#include <windows.h>
#include <dxgi1_4.h>
#include <d3d12.h>
#include <vkd3d.h>

#define EXPORT __declspec(dllexport) HRESULT WINAPI

static HRESULT signal_event(HANDLE event)
{
    return SetEvent(event) ? S_OK : E_FAIL;
}

/* The given adapter, or the first that DXGI lists. */
static HRESULT find_adapter(IUnknown *given, IDXGIAdapter **adapter)
{
    HRESULT(WINAPI * create)(REFIID, void **);
    IDXGIFactory1 *factory = NULL;
    HMODULE dxgi;
    HRESULT hr;

    if (given)
        return IUnknown_QueryInterface(given, &IID_IDXGIAdapter, (void **)adapter);
    if (!(dxgi = LoadLibraryA("dxgi.dll"))
            || !(create = (void *)GetProcAddress(dxgi, "CreateDXGIFactory1")))
        return E_FAIL;
    if (FAILED(hr = create(&IID_IDXGIFactory1, (void **)&factory)))
        return hr;
    return IDXGIFactory1_EnumAdapters(factory, 0, adapter);
}

EXPORT D3D12CreateDevice(IUnknown *given, D3D_FEATURE_LEVEL level, REFIID iid, void **device)
{
    /* Both are needed to find the Vulkan device that has the adapter's LUID. */
    static const char *const extensions[] = {
        "VK_KHR_external_memory_capabilities",
        "VK_KHR_get_physical_device_properties2",
    };
    static const struct vkd3d_application_info application = {
        .type = VKD3D_STRUCTURE_TYPE_APPLICATION_INFO,
        .api_version = VKD3D_API_VERSION_1_14,
    };
    struct vkd3d_optional_instance_extensions_info optional = {
        .type = VKD3D_STRUCTURE_TYPE_OPTIONAL_INSTANCE_EXTENSIONS_INFO,
        .next = &application,
        .extensions = extensions,
        .extension_count = 2,
    };
    struct vkd3d_instance_create_info instance = {
        .type = VKD3D_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .next = &optional,
        .pfn_signal_event = signal_event,
        .wchar_size = sizeof(WCHAR),
    };
    struct vkd3d_device_create_info create = {
        .type = VKD3D_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .minimum_feature_level = level,
        .instance_create_info = &instance,
    };
    HMODULE vulkan = LoadLibraryA("vulkan-1.dll");
    IDXGIAdapter *adapter = NULL;
    DXGI_ADAPTER_DESC desc;
    HRESULT hr;

    if (!vulkan)
        return E_FAIL;
    instance.pfn_vkGetInstanceProcAddr = (void *)GetProcAddress(vulkan, "vkGetInstanceProcAddr");
    if (FAILED(hr = find_adapter(given, &adapter)))
        return hr;
    if (SUCCEEDED(IDXGIAdapter_GetDesc(adapter, &desc)))
        create.adapter_luid = desc.AdapterLuid;
    create.parent = (IUnknown *)adapter;
    return vkd3d_create_device(&create, iid, device);
}

EXPORT D3D12GetDebugInterface(REFIID iid, void **debug)
{
    return 0x887A002D; /* DXGI_ERROR_SDK_COMPONENT_MISSING: as on a PC without the debug layer */
}

EXPORT D3D12EnableExperimentalFeatures(
        UINT count, const IID *iids, void *structures, UINT *sizes)
{
    return E_NOINTERFACE;
}

EXPORT D3D12SerializeRootSignature(const D3D12_ROOT_SIGNATURE_DESC *desc,
        D3D_ROOT_SIGNATURE_VERSION version, ID3DBlob **blob, ID3DBlob **error)
{
    return vkd3d_serialize_root_signature(desc, version, blob, error);
}

EXPORT D3D12SerializeVersionedRootSignature(
        const D3D12_VERSIONED_ROOT_SIGNATURE_DESC *desc, ID3DBlob **blob, ID3DBlob **error)
{
    return vkd3d_serialize_versioned_root_signature(desc, blob, error);
}

EXPORT D3D12CreateRootSignatureDeserializer(
        const void *data, SIZE_T size, REFIID iid, void **deserializer)
{
    return vkd3d_create_root_signature_deserializer(data, size, iid, deserializer);
}

EXPORT D3D12CreateVersionedRootSignatureDeserializer(
        const void *data, SIZE_T size, REFIID iid, void **deserializer)
{
    return vkd3d_create_versioned_root_signature_deserializer(data, size, iid, deserializer);
}
